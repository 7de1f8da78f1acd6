"""What a worker has in hand: units of a clock-aligned window that it took from the store and has not spent yet.

Rules:
- A unit in hand was taken from the store in the window it is spent in; another window begins with empty hands.
- A call that finds too little in hand puts what there is on the table and asks the store for the rest, or for a lease of
  `size` units if that is more. So no more than `size - 1` units are ever in hand once the call is paid.
- One lease for a caller is on its way at a time. Calls of the same kind wait for it, and the next one takes what they miss,
  too: it is spent at once. Those that cannot wait, or waited often enough, ask for exactly what they miss.
- No lease is asked for where the store is known to have less. The last units of a window go one call at a time, so that
  other workers find them.
- A call that had the store's yes is paid for, though its task may have been cancelled meanwhile.
- The lock is held for arithmetic, never over I/O.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from ratelimit.outcome import MAX_SKEW_US
from ratelimit.rates import Rate
from ratelimit.stores.base import Taken

MAX_HANDS: Final = 4_096
"""Callers of one rule and tier who may have something in hand. Others are asked for as if there were no leases."""
MOST_WAITS: Final = 2
"""Leases that a call waits for: the second one was taken with it in mind."""
_LOOKED_AT: Final = 8


class Hand:
    """What is in hand for one caller: `units`, and how many the store had counted when it last said. `missing` units are
    waited for, and `lease` may be on its way."""

    __slots__ = ("lease", "missing", "units", "used")

    def __init__(self) -> None:
        self.units = self.used = self.missing = 0
        self.lease: Trip | None = None

    def spend(self, cost: int, now_us: int) -> Taken:
        """Takes `cost` units, which are there. The state found is what calls have used, as far as this worker knows."""
        before = max(0, self.used - self.units)
        self.units -= cost
        return True, (before,), now_us


class Trip:
    """A call's way to the store, for `units`. With those on the table, `missing` of them make its cost.

    `way` tells who can wait for a lease: tasks of that event loop, or with None threads. `landed` is what they wait for: a
    task that its call sets at once, or an Event. `failure` is what a thread's trip met.
    """

    __slots__ = ("failure", "hand", "landed", "missing", "table", "units", "way")

    def __init__(self, hand: Hand, way: Any, missing: int, units: int) -> None:
        self.hand, self.way, self.missing, self.units = hand, way, missing, units
        self.table, hand.units = hand.units, 0
        self.landed: Any = None
        self.failure: Exception | None = None


class Wait(NamedTuple):
    """A call that waits for another one's lease."""

    lease: Trip
    cost: int


class Hands:
    """The hands of one rate's callers, in leases of `size`. Safe under threads."""

    def __init__(self, rate: Rate, size: int) -> None:
        self._limit, self._window_us, self._size = rate.limit, rate.window_us, size
        self.renew()

    def renew(self) -> None:
        """Begins with empty hands and a lock that nobody holds."""
        self._lock = threading.Lock()
        self._begin(0)
        self._end_us = 0

    def spend(self, caller: str, cost: int, now_us: int) -> Taken | None:
        """Takes `cost` units if they are in hand."""
        with self._lock:
            if self._start_us <= now_us < self._end_us:
                hand = self._hands.get(caller)
                if hand is not None and hand.units >= cost:
                    return hand.spend(cost, now_us)
        return None

    def step(self, caller: str, cost: int, now_us: int, way: Any, waits: int) -> Taken | Trip | Wait | None:
        """What a call for `cost` units does next: it has them, asks the store, waits for another's lease; None if it is none
        of the hands' business. `waits` tells how many it waited for."""
        if cost > self._limit:
            return None
        with self._lock:
            hand = self._hand(caller, now_us)
            if hand is None:
                return None
            if hand.units >= cost:
                return hand.spend(cost, now_us)
            lease = hand.lease
            if lease is not None and lease.way is not None and lease.way.is_closed():
                lease = hand.lease = None  # it lands nowhere
            if waits < MOST_WAITS and lease is not None and lease.way is way:
                hand.missing += cost
                return Wait(lease, cost)
            missing = cost - hand.units
            if waits >= MOST_WAITS or lease is not None:
                return Trip(hand, way, missing, missing)
            return self._trip(hand, way, missing)

    def waited(self, wait: Wait) -> None:
        """The call waits no longer."""
        with self._lock:
            wait.lease.hand.missing -= wait.cost

    def landed(self, trip: Trip, found: Taken) -> Taken | None:
        """What became of the call; None if it was refused a lease, and may yet have what it misses."""
        passes, (used,), at_us = found
        hand, cost = trip.hand, trip.table + trip.missing
        with self._lock:
            if hand.lease is trip:
                hand.lease = None
            hand.used = max(hand.used, used + trip.units if passes else used)
            if passes:
                hand.units += trip.units - trip.missing
                return True, (max(0, used - trip.table),), at_us
            hand.units += trip.table
            if hand.units >= cost:  # of a lease that landed meanwhile
                return hand.spend(cost, at_us)
            if trip.units > trip.missing and cost - hand.units <= self._limit - used:
                return None
            return False, (max(0, used - hand.units),), at_us

    def failed(self, trip: Trip, failure: BaseException) -> None:
        """The store did not answer: what was on the table is in hand again. What it may have given is lost."""
        with self._lock:
            if trip.hand.lease is trip:
                trip.hand.lease = None
            trip.hand.units += trip.table
            trip.failure = failure if isinstance(failure, Exception) else None

    def drop(self, caller: str) -> None:
        """Empties the caller's hand. A lease on its way lands in none."""
        with self._lock:
            self._hands.pop(caller, None)

    def _trip(self, hand: Hand, way: Any, missing: int) -> Trip:
        """The way to the store, with a lease if there is likely to be one."""
        left = self._limit - hand.used
        for units in (max(missing + hand.missing, self._size), self._size):
            if missing < units <= left:
                trip = hand.lease = Trip(hand, way, missing, units)
                trip.landed = threading.Event() if way is None else None
                return trip
        return Trip(hand, way, missing, missing)

    def _hand(self, caller: str, now_us: int) -> Hand | None:
        """The caller's hand at that time; None for a time whose hands are gone, and when there is no room for another."""
        if now_us >= self._end_us or self._start_us - now_us > MAX_SKEW_US:  # later, or a clock that was put right
            self._begin(now_us)
        elif now_us < self._start_us:
            return None
        hand = self._hands.get(caller)
        if hand is None and (len(self._hands) < MAX_HANDS or self._made_room()):
            hand = self._hands[caller] = Hand()
        return hand

    def _begin(self, now_us: int) -> None:
        self._start_us = now_us - now_us % self._window_us
        self._end_us = self._start_us + self._window_us
        self._hands: dict[str, Hand] = {}
        self._seen: Iterator[str] = iter(())

    def _made_room(self) -> bool:
        """Whether one of the next few hands was empty, and made room. Full ones stay: what is in them would be stranded."""
        for caller in islice(self._seen, _LOOKED_AT):
            hand = self._hands.get(caller)
            if hand is not None and hand.units == hand.missing == 0 and hand.lease is None:
                del self._hands[caller]
                return True
        self._seen = iter(list(self._hands))
        return False
