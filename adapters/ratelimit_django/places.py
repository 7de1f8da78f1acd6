"""Places in a Django cache: a key for each place of a room, which whoever adds it has.

Rules:
- Adding a key that is not there is one operation of the backend, so two never have one place. A backend that reads and writes
  instead (database, file, dummy) is refused.
- A lease is the key's lifetime. It is renewed by touching the key, and then looking whose it is: whoever was too late touches
  what is another's by now, and hears of it.
- A member tries the places in an order of its own, so that those who come together do not all try the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar
from zlib import crc32

from asgiref.sync import sync_to_async
from django.core.cache import BaseCache

from ratelimit import ConfigurationError
from ratelimit.stores.places import Claim, Claimed, Room
from ratelimit_django.caches import counts_atomically, runs_in_process
from ratelimit_django.counters import short_enough

MAX_MOST: Final = 256
"""Places of a room: all of them are looked at, to find a free one."""


T = TypeVar("T")


class Safely(Protocol):
    """Does work on this thread's cache, and turns what fails into `StoreError`."""

    def __call__(self, work: Callable[[BaseCache], T]) -> T: ...


class CachePlaces:
    """See `Places`. `cache` gives this thread's cache, to see what it is."""

    def __init__(self, cache: Callable[[], BaseCache], safely: Safely) -> None:
        self._cache, self._safely = cache, safely

    async def ahold(self, claims: Sequence[Claim], now_us: int) -> list[Claimed]:
        """See `Places.ahold`. To take: one read, and a write for each place that is tried; to renew: a touch and two reads."""
        return await self._in_thread(lambda cache: [_hold(cache, claim) for claim in claims])

    async def arelease(self, claim: Claim) -> None:
        """See `Places.arelease`; a read and a delete."""
        await self._in_thread(lambda cache: _release(cache, claim))

    def count(self, room: Room, now_us: int) -> int:
        """See `Places.count`; one read."""
        return self._safely(lambda cache: len(_taken(_exact(cache), room)))

    async def acount(self, room: Room, now_us: int) -> int:
        """The same, in a thread."""
        return await self._in_thread(lambda cache: len(_taken(_exact(cache), room)))

    async def _in_thread(self, work: Callable[[BaseCache], T]) -> T:
        if runs_in_process(self._cache()):
            return self._safely(work)
        found: T = await sync_to_async(self._safely, thread_sensitive=False)(work)
        return found


def _hold(cache: BaseCache, claim: Claim) -> Claimed:
    room, member = claim
    seconds = room.lease_us // 1_000_000
    taken = _taken(_exact(cache), room)
    for place in [place for place, owner in taken.items() if owner == member]:
        if cache.touch(place, seconds) and cache.get(place) == member:
            return Claimed(True, len(taken))
        del taken[place]
    first = crc32(member.encode())
    places = _places(cache, room)
    for place in [places[(first + i) % len(places)] for i in range(len(places))]:
        if place not in taken:
            if cache.add(place, member, seconds):
                return Claimed(True, len(taken) + 1)
            taken[place] = ""  # another one's, since it was looked at
    return Claimed(False, len(taken))


def _release(cache: BaseCache, claim: Claim) -> None:
    for place, owner in _taken(_exact(cache), claim.room).items():
        if owner == claim.member:
            cache.delete(place)


def _taken(cache: BaseCache, room: Room) -> dict[str, str]:
    """The places that somebody has, and who."""
    found: dict[str, str] = cache.get_many(_places(cache, room))
    return found


def _places(cache: BaseCache, room: Room) -> list[str]:
    if room.most > MAX_MOST:
        raise ConfigurationError(
            f"a Django cache keeps at most {MAX_MOST} places for a caller, not {room.most}; use Redis"
        )
    return [short_enough(cache, f"{room.key}:{number}") for number in range(room.most)]


def _exact(cache: BaseCache) -> BaseCache:
    if not counts_atomically(cache):
        raise ConfigurationError(
            f"{type(cache).__name__} cannot keep places: two could take one. Use a Redis, Memcached or LocMem cache, or Redis"
        )
    return cache
