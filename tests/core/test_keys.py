from __future__ import annotations

import gc
import tracemalloc
from urllib.parse import unquote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ratelimit import Rate
from ratelimit.keys import caller_tag, encoded, further_head, head, stored_key
from ratelimit.outcome import Charge
from ratelimit.rates import MAX_WINDOW
from ratelimit.testing import CALLERS

LONGEST_PREFIX = "p" * 32
YEAR_9999_US = 253_402_300_799_000_000
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=120)
# Pieces that key builders trip over, glued at random: far likelier to collide than any text.
PIECES = st.lists(
    st.sampled_from(["{", "}", "{}", ":", "~", "%", "%7B", "%7E", "~60s", "a", "user:1", "x" * 40, "é", "\n", "\ud800"])
).map("".join)
TEXT = ANY_TEXT | PIECES
RATES = st.builds(
    Rate, st.integers(0, 10), st.integers(1, MAX_WINDOW), algorithm=st.sampled_from(["fixed", "anchored", "sliding"])
)
NOW = st.integers(0, YEAR_9999_US)


def charge(group: str, caller: str, rate: Rate, prefix: str = "rl", further: bool = False) -> Charge:
    first = head(prefix, group)
    return Charge(further_head(first, rate) if further else first, caller, rate, 1, group)


def tag(key: str) -> str:
    """What a cluster hashes: from the first opening brace to the next closing one."""
    return key[key.index("{") + 1 : key.index("}", key.index("{"))]


@pytest.mark.parametrize(
    ("group", "caller", "key"),
    [
        ("graphql:Query.documents", "user:42", "rl:graphql:Query.documents:{user:42}:28571428"),
        ("AI_QUERY", "ip:2001:db8:1:2::", "rl:AI_QUERY:{ip:2001:db8:1:2::}:28571428"),
        ("g", "", "rl:g:{~}:28571428"),
        ("g", "a b", "rl:g:{a%20b}:28571428"),
        ("g", "}x{", "rl:g:{%7Dx%7B}:28571428"),
        ("g", "{}", "rl:g:{%7B%7D}:28571428"),
        ("g", "100%~", "rl:g:{100%25%7E}:28571428"),
        ("g", "é", "rl:g:{%C3%A9}:28571428"),
        ("g", "a\x00b\n", "rl:g:{a%00b%0A}:28571428"),
        ("a{b}", "u", "rl:a%7Bb%7D:{u}:28571428"),
    ],
)
def test_a_key_is_prefix_group_caller_and_window(group: str, caller: str, key: str) -> None:
    now_us = 28_571_428 * 60_000_000
    for moment in (now_us, now_us + 59_999_999):
        assert stored_key(charge(group, caller, Rate(10, 60)), moment) == key
    assert stored_key(charge(group, caller, Rate(10, 60)), now_us + 60_000_000) != key


@pytest.mark.parametrize(
    ("text", "member", "key"),
    [
        ("10/m", None, "rl:g:{u}:30000000"),
        ("10/m anchored", None, "rl:g:{u}:a60"),
        ("10/m sliding", None, "rl:g:{u}:s60"),
        ("10/m burst 20", None, "rl:g:{u}:t60"),
        ("10/h leaky", None, "rl:g:{u}:l3600"),
        ("10/m", "", "rl:g:{u}:d30000000"),
    ],
)
def test_each_algorithm_keeps_its_state_under_a_key_of_its_own(text: str, member: str | None, key: str) -> None:
    found = charge("g", "u", Rate.parse(text))._replace(member=member)
    assert stored_key(found, 1_800_000_000_000_000) == key


def test_a_ban_has_a_key_beside_its_rule() -> None:
    found = charge("login", "ip:203.0.113.7", Rate(5, 60))
    assert found.ban_key == ""
    assert found._replace(ban_head=found.head).ban_key == "rl:login:{ip:203.0.113.7}:ban"


def test_further_rates_are_told_apart_by_their_window() -> None:
    assert charge("AI_QUERY", "user:42", Rate(200, 3600), further=True).key == "rl:AI_QUERY~3600s:{user:42}"


@given(TEXT, TEXT, RATES, NOW)
def test_every_key_is_short_printable_ascii_with_the_whole_caller_as_its_one_hash_tag(
    group: str, caller: str, rate: Rate, now_us: int
) -> None:
    for further in (False, True):
        stored = stored_key(charge(group, caller, rate, LONGEST_PREFIX, further), now_us)
        assert all(0x21 <= ord(character) <= 0x7E for character in stored)
        assert len(stored) <= (214 if rate.algorithm == "fixed" else 218)
        assert (stored.count("{"), stored.count("}")) == (1, 1)
        assert tag(stored) == encoded(caller) != ""
        assert caller_tag(caller) == f"{{{tag(stored)}}}"


def test_the_longest_key() -> None:
    part, longest = "x" * 80, Rate(1, MAX_WINDOW, algorithm="anchored")
    assert len(stored_key(charge(part, part, longest, LONGEST_PREFIX, True), 0)) == 218


@given(TEXT, TEXT, TEXT, TEXT, RATES)
@example("a", "b:c", "a:b", "c", Rate(1, 60))
@example("g", "x" * 299 + "y", "g", "x" * 300, Rate(1, 60))
@example("g~60s", "u", "g", "u", Rate(1, 60))
@example("", "", "~", "~", Rate(1, 60))
def test_two_different_pairs_never_share_a_key(group: str, caller: str, group2: str, caller2: str, rate: Rate) -> None:
    assume((group, caller) != (group2, caller2))
    keys = {charge(group, caller, rate).key, charge(group2, caller2, rate).key}
    further = {charge(*one, rate, further=True).key for one in ((group, caller), (group2, caller2))}
    assert len(keys | further) == 4


@given(TEXT)
def test_a_short_part_can_be_read_back(part: str) -> None:
    text = encoded(part)
    assume(part and len(text) <= 80 and "~" not in text)
    assert unquote(text, errors="surrogatepass") == part


@given(TEXT)
def test_encoding_is_the_same_every_time_and_as_it_stands_for_plain_text(part: str) -> None:
    assert encoded(part) == encoded(part)
    assert encoded("user:42") == "user:42"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 40 + "~1cd949126ad355b5adef8dede1f367fa"),
        ("é" * 13, "%C3%A9" * 13),
        ("é" * 14, "%C3%A9" * 6 + "%C3%" + "~33336c35a8f4e6ef66f1f08e10cbc5a4"),
    ],
)
def test_a_part_longer_than_80_characters_is_cut_and_hashed(part: str, text: str) -> None:
    assert encoded(part) == text


def test_callers_that_trip_key_builders_up_have_keys_of_their_own() -> None:
    assert len({charge("g", caller, Rate(1, 60)).key for caller in CALLERS}) == len(CALLERS)


def test_long_callers_are_not_kept_in_memory() -> None:
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(2000):
        encoded(f"{number} " + "x" * 10_000)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 2_000_000
