"""Places in Redis: a sorted set for each room, of members by the end of their lease.

Rules:
- Taking, renewing and counting are one script, so that no two processes take the last place.
- Claims go together, up to `BATCH` of them in a command; on a cluster each room has commands of its own. All are on the way
  at once.
- The time is the server's, unless the store is told to use the node's. Every write gives the set a lifetime.
"""

from __future__ import annotations

from asyncio import gather
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from ratelimit.stores.places import Claim, Claimed, Room
from ratelimit.stores.redis_script import Script

BATCH: Final = 100
"""Claims that one command is about: the server works on it for less than a millisecond."""
_HOLD: Final = Script("redis_places.lua")

Run = Callable[[Script, Sequence[str], Sequence[Any]], Any]
"""Runs a script whose keys are in one slot, and gives its reply. Raises `StoreError`."""
AsyncRun = Callable[[Script, Sequence[str], Sequence[Any]], Awaitable[Any]]
Command = Callable[[str, str, str], Awaitable[Any]]
"""Sends a command about one key: name, key, argument. Raises `StoreError`."""
Batch = dict[Room, list[str]]
"""Rooms, and the members that claim a place in each."""


class RedisPlaces:
    """See `Places`. Its store says how scripts and commands are sent, from a thread and from the running event loop."""

    def __init__(self, run: Run, arun: AsyncRun, acommand: Command, server_time: bool, clustered: bool) -> None:
        self._run, self._arun, self._acommand = run, arun, acommand
        self._server_time, self._clustered = server_time, clustered

    async def ahold(self, claims: Sequence[Claim], now_us: int) -> list[Claimed]:
        """See `Places.ahold`; one EVALSHA for up to `BATCH` claims, on a cluster for those on one room."""
        batches = self._batches(claims)
        asked = [self._arun(*self._question(batch, now_us)) for batch in batches]
        replies = [await asked[0]] if len(asked) == 1 else await gather(*asked)
        found: dict[Claim, Claimed] = {}
        for batch, reply in zip(batches, replies, strict=True):
            numbers = iter(reply)
            for room, members in batch.items():
                taken = int(next(numbers))
                found |= {Claim(room, member): Claimed(int(next(numbers)) == 1, taken) for member in members}
        return [found[claim] for claim in claims]

    async def arelease(self, claim: Claim) -> None:
        """See `Places.arelease`; one ZREM."""
        await self._acommand("ZREM", claim.room.key, claim.member)

    def count(self, room: Room, now_us: int) -> int:
        """See `Places.count`; one EVALSHA."""
        return int(self._run(*self._question({room: []}, now_us))[0])

    async def acount(self, room: Room, now_us: int) -> int:
        """See `Places.acount`; one EVALSHA."""
        return int((await self._arun(*self._question({room: []}, now_us)))[0])

    def _batches(self, claims: Sequence[Claim]) -> list[Batch]:
        rooms: Batch = {}
        for room, member in claims:
            rooms.setdefault(room, []).append(member)
        if not self._clustered and len(claims) <= BATCH:
            return [rooms]
        batches: list[Batch] = []
        size = BATCH
        for room, members in rooms.items():
            for first in range(0, len(members), BATCH):
                part = members[first : first + BATCH]
                if self._clustered or size + len(part) > BATCH:
                    batches.append({})
                    size = 0
                batches[-1][room] = part
                size += len(part)
        return batches

    def _question(self, batch: Batch, now_us: int) -> tuple[Script, list[str], list[Any]]:
        args: list[Any] = [0 if self._server_time else now_us]
        for room, members in batch.items():
            args += (room.most, room.lease_us, len(members), *members)
        return _HOLD, [room.key for room in batch], args
