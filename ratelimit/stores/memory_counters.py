"""Counters of a memory store: one rate of one group, for any caller, without a general transaction around it.

Rules:
- Each does what `MemoryStore.apply` does with one plain charge, and counts in the same table.
- The short way is for a caller who is at hand and has units left after the call; everything else goes the long way.
- On the short way nothing is called while the lock is held: only at calls and loops does the interpreter switch threads, and
  one that is switched away with the lock makes all others queue up behind it, call after call.
"""

from __future__ import annotations

from typing import Any, Final

from ratelimit.algorithms.base import BY_NAME, State
from ratelimit.decision import Asked, Decision, Figures, taken
from ratelimit.outcome import MAX_SKEW_US
from ratelimit.rates import Rate
from ratelimit.stores.base import LocalCounter, Taken
from ratelimit.stores.keeper import Keeper, shortened
from ratelimit.stores.tables import BITS, LOW, Table, kept, state_of

_BUCKETS: Final = ("token_bucket", "leaky_bucket")
_NOBODY: Final = 1 << 3 * BITS
"""What is known of a caller who is not at hand: a bucket so far ahead of every clock that it is not looked at."""


def counter_of(keeper: Keeper, head: str, rate: Rate) -> LocalCounter:
    """The counter for `rate`."""
    whole = AnyCounter(keeper, head, rate)
    if rate.algorithm == "fixed":
        return WindowCounter(keeper, whole)
    if rate.algorithm in _BUCKETS and rate.limit and rate.capacity * rate.window_us <= LOW:
        return BucketCounter(keeper, whole)
    return whole


class AnyCounter:
    """The long way, for every algorithm. `table` is the one that it last counted in."""

    __slots__ = ("_keeper", "_name", "_span_us", "rate", "table")

    def __init__(self, keeper: Keeper, head: str, rate: Rate) -> None:
        self.rate = rate
        self.table = Table(rate.window_us, True)
        self._keeper = keeper
        self._name = head, rate.algorithm, rate.window
        # A full bucket needs that long to be empty again.
        full_us = rate.capacity * rate.window_us // max(1, rate.limit) + MAX_SKEW_US
        self._span_us = full_us if rate.algorithm in _BUCKETS else rate.window_us

    def decide(self, asked: Asked, caller: str, cost: int, now_us: int) -> Decision:
        """See `LocalCounter.decide`."""
        with self._keeper.lock:
            found = self.take(caller, cost, now_us)
        return taken(asked, caller, cost, found)

    def take(self, caller: str, cost: int, now_us: int) -> Taken:
        """Takes `cost` units if they are there; for who holds the lock."""
        found = self.look(caller, cost, now_us)
        if found[0]:
            self.keep(caller, found[1], cost, now_us)
        return found

    def look(self, caller: str, cost: int, now_us: int) -> Taken:
        """What `take` would find; for who holds the lock."""
        rate = self.rate
        algorithm, key = BY_NAME[rate.algorithm], shortened(caller)
        table = self._keeper.table(self._name, self._span_us, rate.algorithm == "fixed", now_us)
        found, _ = table.get(key, now_us)
        before = algorithm.current(None if found is None else state_of(rate, found), rate, now_us)
        return algorithm.passes(before, rate, cost, now_us), before, now_us

    def keep(self, caller: str, before: State, cost: int, now_us: int) -> None:
        """Takes `cost` units that are there; for who holds the lock."""
        rate, keeper = self.rate, self._keeper
        algorithm = BY_NAME[rate.algorithm]
        # Asked for again: an empty one may have been let go since.
        table = self.table = keeper.table(self._name, self._span_us, rate.algorithm == "fixed", now_us)
        after = algorithm.take(before, cost)
        table.widen(algorithm.lifetime_us(after, rate, now_us))
        spent = not algorithm.passes(after, rate, 1, now_us)
        keeper.keep(table, shortened(caller), kept(rate, after), spent, now_us, now_us)


class WindowCounter:
    """Clock-aligned windows."""

    __slots__ = ("_keeper", "_limit", "_long", "_window_us")

    def __init__(self, keeper: Keeper, whole: AnyCounter) -> None:
        self._keeper = keeper
        self._long = whole
        self._limit, self._window_us = whole.rate.limit, whole.rate.window_us

    def state(self, found: int, at_us: int) -> State:
        """What was found, as the algorithm knows it."""
        return (found,)

    def figures(self, cost: int, found: int, at_us: int) -> Figures:
        """See `Asked.figures`."""
        window_us = self._window_us
        return self._limit, self._limit - found - cost, window_us - at_us % window_us

    def decide(self, asked: Asked, caller: str, cost: int, now_us: int) -> Decision:
        """See `LocalCounter.decide`."""
        table = self._long.table
        allowed = True
        found: Any = None
        with self._keeper.lock:
            if table.since_us <= now_us < table.until_us:
                recent = table.recent
                try:
                    known = recent[caller]
                except KeyError:
                    recent = table.newest.open.part(caller)
                    known = recent.get(caller, self._limit)
                used: int = known
                if used + cost < self._limit:
                    recent[caller] = used + cost
                    found = known
            if found is None:
                allowed, found, _ = self._long.take(caller, cost, now_us)
        decision = Decision()  # as `taken` does: a call of it would cost a twenty-fifth of the check
        decision.allowed = allowed
        decision._binding = asked
        decision._caller = caller
        decision._cost = cost
        decision._found = found
        decision._at_us = now_us
        return decision


class BucketCounter:
    """Token and leaky buckets."""

    __slots__ = ("_capacity", "_keeper", "_limit", "_long", "_room", "_window_us")

    def __init__(self, keeper: Keeper, whole: AnyCounter) -> None:
        self._keeper = keeper
        self._long = whole
        rate = whole.rate
        self._limit, self._window_us, self._capacity = rate.limit, rate.window_us, rate.capacity
        self._room = (rate.capacity - 1) * rate.window_us  # a level that leaves a unit

    def state(self, found: int, at_us: int) -> State:
        """What was found, as the algorithm knows it at `at_us`."""
        return (at_us, *divmod(found, self._window_us))

    def figures(self, cost: int, found: int, at_us: int) -> Figures:
        """See `Asked.figures`."""
        after = found + cost * self._window_us
        return self._capacity, self._capacity + -after // self._window_us, -(-after // self._limit)

    def decide(self, asked: Asked, caller: str, cost: int, now_us: int) -> Decision:
        """See `LocalCounter.decide`."""
        table = self._long.table
        allowed = True
        found: Any = None
        with self._keeper.lock:
            if now_us < table.until_us:  # a clock that stepped back is behind what is found here, too
                recent = table.recent
                try:
                    pair: tuple[int, int] = recent[caller]
                    last_us, level = pair
                except (KeyError, TypeError):  # not there, or a number
                    recent = table.newest.open.part(caller)
                    known = recent.get(caller, _NOBODY)
                    last_us, level = known if type(known) is tuple else (known >> BITS, known & LOW)
                elapsed_us = now_us - last_us
                if elapsed_us >= 0:
                    level -= elapsed_us * self._limit
                    if level < 0:
                        level = 0
                    # Most calls cost 1, and to multiply a long window takes a twentieth of the check.
                    after = level + (self._window_us if cost == 1 else cost * self._window_us)
                    if after <= self._room:
                        # A pair takes less time than a number, but more room: where there are few.
                        recent[caller] = (now_us, after) if recent is table.recent else now_us << BITS | after
                        found = level
            if found is None:
                allowed, found, _ = self._long.take(caller, cost, now_us)
        decision = Decision()
        decision.allowed = allowed
        decision._binding = asked
        decision._caller = caller
        decision._cost = cost
        decision._found = found
        decision._at_us = now_us
        return decision
