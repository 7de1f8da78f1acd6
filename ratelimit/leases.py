"""Leases: a worker takes several units of a window at a time, and spends them without asking the store.

What is taken and what is in hand is worked out in `hands.py`; here are the trips to the store, from threads and from event
loops. The store's counters are asked as they always are: to the store, a lease is a check that costs more.
"""

from __future__ import annotations

import os
import weakref
from asyncio import Future, ensure_future, get_running_loop, shield
from typing import Final

from ratelimit.decision import Asked, Decision, taken
from ratelimit.hands import MOST_WAITS, Hands, Trip, Wait
from ratelimit.rates import Rate
from ratelimit.stores.base import Counter, Taken

PATIENCE_S: Final = 1.0
"""How long a thread waits for another one's lease: longer than a store takes to answer or to fail."""


class Leased:
    """The counter of a rate whose windows are clock-aligned, asked for `size` units at a time. See `Store.counter`."""

    def __init__(self, counter: Counter, rate: Rate, size: int) -> None:
        self._counter = counter
        self.hands = Hands(rate, size)
        _LEASED.add(self)

    def decide(self, asked: Asked, caller: str, cost: int, now_us: int) -> Decision | None:
        """The decision on a call whose units are in hand; None if it has to be asked for. Never waits."""
        found = self.hands.spend(caller, cost, now_us)
        return None if found is None else taken(asked, caller, cost, found)

    def take(self, caller: str, cost: int, now_us: int) -> Taken:
        """Takes `cost` units if they are there; no trip if they are in hand, two if a lease is refused, else one."""
        hands, waits = self.hands, 0
        while True:
            step = hands.step(caller, cost, now_us, None, waits)
            if isinstance(step, Wait):
                waits = waits + 1 if self._wait(step) else MOST_WAITS
            elif isinstance(step, Trip):
                found = self._go(step, caller, now_us)
                if found is not None:
                    return found
                waits = MOST_WAITS
            else:
                return self._counter.take(caller, cost, now_us) if step is None else step

    async def atake(self, caller: str, cost: int, now_us: int) -> Taken:
        """`take` for an event loop, which it never blocks."""
        hands, waits, way = self.hands, 0, get_running_loop()
        while True:
            step = hands.step(caller, cost, now_us, way, waits)
            if isinstance(step, Wait):
                try:
                    await shield(step.lease.landed)  # so that who is cancelled takes it from nobody; raises what it met
                finally:
                    hands.waited(step)
                waits += 1
            elif isinstance(step, Trip):
                found = await self._ago(step, caller, now_us)
                if found is not None:
                    return found
                waits = MOST_WAITS
            else:
                return await self._counter.atake(caller, cost, now_us) if step is None else step

    def _wait(self, wait: Wait) -> bool:
        """Whether the lease has landed. Raises what it met: the store would not answer this thread either."""
        try:
            landed = wait.lease.landed.wait(PATIENCE_S)
        finally:
            self.hands.waited(wait)
        if wait.lease.failure is not None:
            raise wait.lease.failure
        return bool(landed)

    def _go(self, trip: Trip, caller: str, now_us: int) -> Taken | None:
        try:
            found = self._counter.take(caller, trip.units, now_us)
        except BaseException as error:
            self.hands.failed(trip, error)
            raise
        else:
            return self.hands.landed(trip, found)
        finally:
            if trip.landed is not None:
                trip.landed.set()

    async def _ago(self, trip: Trip, caller: str, now_us: int) -> Taken | None:
        """The same. A lease is a task of its own, so that it lands even if the call that wanted it is cancelled."""
        if trip.units == trip.missing:
            return await self._carry(trip, caller, now_us)
        trip.landed = ensure_future(self._carry(trip, caller, now_us))
        trip.landed.add_done_callback(_heard)
        return await shield(trip.landed)

    async def _carry(self, trip: Trip, caller: str, now_us: int) -> Taken | None:
        try:
            found = await self._counter.atake(caller, trip.units, now_us)
        except BaseException as error:
            self.hands.failed(trip, error)
            raise
        return self.hands.landed(trip, found)


def _heard(lease: Future[Taken | None]) -> None:
    """What it met is no news, even if all who waited for it were cancelled."""
    if not lease.cancelled():
        lease.exception()


_LEASED: Final[weakref.WeakSet[Leased]] = weakref.WeakSet()


def _renew_hands() -> None:
    """In a forked child: what is in hand is the parent's, and a lock that another thread of it held stays held."""
    for leased in list(_LEASED):
        leased.hands.renew()


if hasattr(os, "register_at_fork"):  # pragma: no branch (a system without fork)
    os.register_at_fork(after_in_child=_renew_hands)
