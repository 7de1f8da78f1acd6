"""Counters in a Django cache: reading them, taking from them and giving back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, NamedTuple

from django.core.cache import BaseCache

from ratelimit import StoreError
from ratelimit.algorithms import fixed_window
from ratelimit.keys import stored_key
from ratelimit.outcome import Charge

MAX_KEY: Final = 250
"""Bytes that memcached takes for a key, Django's prefix and version included."""
ATTEMPTS: Final = 8
"""How often a counter that vanishes between two operations is sought again."""


class Counter(NamedTuple):
    """One charge's counter: its key in the cache, and the whole seconds it lives when this charge makes it."""

    key: str
    cost: int
    limit: int
    lifetime: int


def keyed(cache: BaseCache, charges: Sequence[Charge], now_us: int) -> list[Counter]:
    """The counters of `charges` in the windows that hold `now_us`. They live to its end and up to a minute more."""
    return [
        Counter(
            short_enough(cache, stored_key(charge, now_us)),
            charge.cost,
            charge.rate.limit,
            -(-fixed_window.lifetime_us((), charge.rate, now_us) // 1_000_000),
        )
        for charge in charges
    ]


def short_enough(cache: BaseCache, key: str) -> str:
    """`key`, or what stands for it where it would be too long for memcached."""
    if len(cache.make_key(key).encode()) <= MAX_KEY:
        return key
    return f"rl~{sha256(key.encode()).hexdigest()}"


def read(cache: BaseCache, counters: Sequence[Counter]) -> list[int]:
    """What is counted; 0 for a counter that does not exist. One read, however many counters."""
    if len(counters) == 1:
        return [_units(cache.get(counters[0].key, 0))]
    found = cache.get_many({counter.key for counter in counters})
    return [_units(found.get(counter.key, 0)) for counter in counters]


def take(cache: BaseCache, counters: Sequence[Counter], used: Sequence[int]) -> tuple[list[int], bool]:
    """Adds the costs by the backend's own operations. The units in use before each, and whether all were taken.

    When others were quicker and a limit is passed, or when the cache fails, nothing stays taken.
    """
    before = list(used)
    taken: list[Counter] = []
    try:
        for i, counter in enumerate(counters):
            if counter.cost:
                after = _increased(cache, counter, fresh=used[i] == 0)
                taken.append(counter)
                before[i] = after - counter.cost
                if after > counter.limit:
                    _give_back(cache, taken)
                    return before, False
    except Exception:
        _give_back(cache, taken)
        raise
    return before, True


def put(cache: BaseCache, counters: Sequence[Counter], used: Sequence[int]) -> tuple[list[int], bool]:
    """`take` for a backend without an increment of its own: writes the sums. The caller sees to it that nobody else
    writes meanwhile."""
    for counter, before in zip(counters, used, strict=True):
        if counter.cost:
            cache.set(counter.key, before + counter.cost, counter.lifetime)
    return list(used), True


def settle(cache: BaseCache, counters: Sequence[Counter]) -> None:
    """Adds the costs whatever the limits, and takes negative ones off, down to 0."""
    for counter in counters:
        if counter.cost > 0:
            _increased(cache, counter, fresh=False)
        else:
            back = min(-counter.cost, _units(cache.get(counter.key, 0)))
            if back:
                cache.decr(counter.key, back)


def _increased(cache: BaseCache, counter: Counter, fresh: bool) -> int:
    for _ in range(ATTEMPTS):
        if fresh:
            if cache.add(counter.key, counter.cost, counter.lifetime):
                return counter.cost
            fresh = False
        else:
            try:
                return _units(cache.incr(counter.key, counter.cost))
            except ValueError:  # evicted or expired since it was read
                fresh = True
    raise StoreError("the cache neither makes nor increments a counter")


def _give_back(cache: BaseCache, taken: Sequence[Counter]) -> None:
    for counter in taken:
        with suppress(Exception):  # gone, or the cache is out: at worst something stays counted until the window ends
            cache.decr(counter.key, counter.cost)


def _units(found: Any) -> int:
    if type(found) is not int:
        raise StoreError(f"the cache gave {found!r} where a count was expected")
    return found
