"""A dictionary in many parts is one dictionary: a key is in one of them."""

from __future__ import annotations

from ratelimit.stores.shards import FIRST, Shards


def test_a_key_stays_where_it_is_when_there_is_room_before_it_again() -> None:
    shards = Shards()
    for number in range(FIRST + 100):
        shards.put(f"u{number}", number)
    late = f"u{FIRST + 50}"
    assert late not in shards.first
    assert shards.pop("u0") == 0
    shards.put(late, -1)
    assert (shards.get(late), shards.size) == (-1, FIRST + 99)
    shards.put("another", 7)
    assert (shards.first["another"], shards.size) == (7, FIRST + 100)
    assert [shards.pop(late), shards.get(late), shards.size] == [-1, None, FIRST + 99]
