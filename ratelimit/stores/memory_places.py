"""Places in this process's memory: exact under threads, without a background thread.

Rules:
- One lock, held for dictionary work only.
- The members of a room stand in the order in which their leases end: those that are over are at the front.
- What was never given back goes when its lease is over: whoever takes a place looks at two rooms, in turn, for such.
- A lease that began later than now, by more than nodes may differ, was made by a clock that was put right since: it is over.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Final

from ratelimit.outcome import MAX_SKEW_US
from ratelimit.stores.places import Claim, Claimed, Room

_LOOKED_AT: Final = 2

Members = OrderedDict[str, tuple[int, int]]
"""Beginning and end of each one's lease (us)."""


class MemoryPlaces:
    """See `Places`; no round trip."""

    def __init__(self) -> None:
        self._rooms: OrderedDict[str, Members] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Rooms in which somebody has a place, or had one lately."""
        return len(self._rooms)

    async def ahold(self, claims: Sequence[Claim], now_us: int) -> list[Claimed]:
        """See `Places.ahold`."""
        with self._lock:
            found = [self._hold(claim, now_us) for claim in claims]
            self._tidy(now_us)
        return found

    async def arelease(self, claim: Claim) -> None:
        """See `Places.arelease`."""
        with self._lock:
            members = self._rooms.get(claim.room.key)
            if members is not None:
                members.pop(claim.member, None)
                if not members:
                    del self._rooms[claim.room.key]

    def count(self, room: Room, now_us: int) -> int:
        """See `Places.count`."""
        with self._lock:
            return sum(_lasts(lease, now_us) for lease in self._rooms.get(room.key, {}).values())

    async def acount(self, room: Room, now_us: int) -> int:
        """The same: nothing here waits."""
        return self.count(room, now_us)

    def renew_lock(self) -> None:
        """In a forked child: a lock that another thread of the parent held would never be released."""
        self._lock = threading.Lock()

    def _hold(self, claim: Claim, now_us: int) -> Claimed:
        room, member = claim
        members = self._rooms.get(room.key, OrderedDict())
        _prune(members, now_us)
        if member not in members and len(members) >= room.most:
            return Claimed(False, len(members))
        members[member] = now_us, now_us + room.lease_us
        members.move_to_end(member)
        self._rooms[room.key] = members
        return Claimed(True, len(members))

    def _tidy(self, now_us: int) -> None:
        for key in list(islice(self._rooms, _LOOKED_AT)):
            _prune(self._rooms[key], now_us)
            if self._rooms[key]:
                self._rooms.move_to_end(key)
            else:
                del self._rooms[key]


def _prune(members: Members, now_us: int) -> None:
    while members and not _lasts(next(iter(members.values())), now_us):
        members.popitem(last=False)


def _lasts(lease: tuple[int, int], now_us: int) -> bool:
    since_us, until_us = lease
    return since_us - MAX_SKEW_US <= now_us < until_us
