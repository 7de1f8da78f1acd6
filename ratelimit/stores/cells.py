"""A bounded dictionary whose entries expire, without a thread and without a sweep that stalls.

Rules:
- `open` cells have units left, `spent` ones have none or are bans. Both are in the order of their last use.
- A key is noted once in the list of the second in which it expires. When that second is over, a few of its keys are looked
  at by each call: a cell that was given a later end meanwhile is noted again, an expired one goes.
- At the bound, room is made by expired cells first, then by the open cell used least recently, and only when none is open
  by the spent one that ends first.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Final

EXPIRED_PER_CALL: Final = 8
_EVICTED_AT_ONCE: Final = 32
_SECOND: Final = 1_000_000


class Cells:
    """`max_keys` cells at most; times in microseconds. Not safe under threads by itself."""

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._open: dict[str, tuple[Any, int]] = {}
        self._spent: dict[str, tuple[Any, int]] = {}
        self._noted: dict[int, list[str]] = {}  # second of expiry -> keys
        self._seconds: list[int] = []  # the seconds in `_noted`, as a heap

    def __len__(self) -> int:
        return len(self._open) + len(self._spent)

    def __iter__(self) -> Iterator[str]:
        yield from self._open
        yield from self._spent

    def get(self, key: str, now_us: int) -> Any:
        """The state under `key`, None if there is none or it has expired."""
        cell = self._open.get(key) or self._spent.get(key)
        return cell[0] if cell is not None and cell[1] > now_us else None

    def put(self, key: str, state: Any, expires_us: int, now_us: int, spent: bool) -> None:
        """Keeps `state` under `key` until `expires_us`, as the most recently used."""
        known = self._open.pop(key, None) or self._spent.pop(key, None)
        if known is None:
            if len(self) >= self._max_keys:
                self._make_room(now_us)
            self._note(key, expires_us)
        (self._spent if spent else self._open)[key] = (state, expires_us)

    def drop(self, key: str) -> None:
        """Forgets `key`."""
        self._open.pop(key, None)
        self._spent.pop(key, None)

    def expire(self, now_us: int, keys: int = EXPIRED_PER_CALL) -> None:
        """Lets go of up to so many expired cells."""
        while keys and self._seconds and (self._seconds[0] + 1) * _SECOND <= now_us:
            noted = self._noted[self._seconds[0]]
            for _ in range(min(keys, len(noted))):
                keys -= 1
                self._look_at(noted.pop(), now_us)
            if not noted:
                del self._noted[heappop(self._seconds)]

    def _look_at(self, key: str, now_us: int) -> None:
        cell = self._open.get(key) or self._spent.get(key)
        if cell is None:
            return
        if cell[1] <= now_us:
            self.drop(key)
        else:
            self._note(key, cell[1])

    def _note(self, key: str, expires_us: int) -> None:
        second = expires_us // _SECOND
        noted = self._noted.get(second)
        if noted is None:
            self._noted[second] = [key]
            heappush(self._seconds, second)
        else:
            noted.append(key)

    def _make_room(self, now_us: int) -> None:
        self.expire(now_us, _EVICTED_AT_ONCE)
        if len(self) >= self._max_keys:
            if self._open:
                # Several at once: finding the oldest key of a dictionary steps over the places of deleted ones.
                batch = 1 if self._max_keys < 64 * _EVICTED_AT_ONCE else _EVICTED_AT_ONCE
                for key in list(islice(self._open, batch)):
                    del self._open[key]
            else:
                self._evict_spent()

    def _evict_spent(self) -> None:
        """Lets go of the cell that ends first: a flood of short ones must not push out a long ban."""
        while True:
            second = self._seconds[0]
            noted = self._noted[second]
            key = noted.pop()
            if not noted:
                del self._noted[heappop(self._seconds)]
            cell = self._spent.pop(key, None)
            if cell is not None and cell[1] // _SECOND <= second:
                return
            if cell is not None:  # it was given a later end since
                self._spent[key] = cell
                self._note(key, cell[1])
