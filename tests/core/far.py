"""A store that is far away: it counts in memory, every answer of its counters is a trip, and tests say when one arrives."""

from __future__ import annotations

from asyncio import Future, get_running_loop, sleep
from collections import Counter
from collections.abc import Callable
from typing import Any

from ratelimit import MemoryStore, Rate
from ratelimit.outcome import LOOK, Charge
from ratelimit.stores.base import Taken


class FarStore(MemoryStore):
    """`trips` are the units that each trip asked for, `given` those that all of a window were given. Counters fail while there
    is an `error`.

    `before` is called when a thread's trip begins. While `held` is a list, replies to tasks wait in it to be set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trips: list[int] = []
        self.given: Counter[int] = Counter()
        self.error: BaseException | None = None
        self.before: Callable[[], object] = lambda: None
        self.held: list[tuple[Future[None], int]] | None = None

    def counter(self, head: str, rate: Rate) -> Any:
        return Far(self, head, rate)

    async def land(self, which: int = 0) -> None:
        """Has a reply arrive, and what waits for it go on."""
        assert self.held
        reply, _ = self.held.pop(which)
        if not reply.done():  # else cancelled
            reply.set_result(None)
        for _ in range(6):
            await sleep(0)

    def used(self, far: Far, caller: str, now_us: int) -> int:
        """Units that are counted for the caller."""
        (outcome,) = self.apply([Charge(far.head, caller, far.rate, 0, "r")], now_us, LOOK)
        return far.rate.limit - outcome.remaining


class Far:
    """A counter of such a store."""

    def __init__(self, store: FarStore, head: str, rate: Rate) -> None:
        self.store, self.head, self.rate = store, head, rate

    def take(self, caller: str, cost: int, now_us: int) -> Taken:
        self.store.before()
        return self._taken(caller, cost, now_us)

    async def atake(self, caller: str, cost: int, now_us: int) -> Taken:
        found = self._taken(caller, cost, now_us)
        if self.store.held is not None:
            reply = get_running_loop().create_future()
            self.store.held.append((reply, cost if found[0] else 0))
            await reply
        return found

    def _taken(self, caller: str, cost: int, now_us: int) -> Taken:
        self.store.trips.append(cost)
        if self.store.error is not None:
            raise self.store.error
        (outcome,) = self.store.apply([Charge(self.head, caller, self.rate, cost, "r")], now_us)
        self.store.given[now_us // self.rate.window_us] += cost if outcome.allowed else 0
        return outcome.allowed, (self.rate.limit - outcome.remaining - (cost if outcome.allowed else 0),), now_us
