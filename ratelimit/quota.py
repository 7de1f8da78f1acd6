"""One rate of one rule, as checks meet it: its counter, its figures, and the denials that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ratelimit.algorithms.base import BY_NAME
from ratelimit.decision import Part
from ratelimit.denials import Denials, NamedDenials
from ratelimit.outcome import NEVER
from ratelimit.rates import Rate
from ratelimit.stores.base import Counter, LocalCounter, Taken

if TYPE_CHECKING:
    from ratelimit.leases import Leased

EVERYBODY: Final = "global"
"""The caller of a rule with one budget for everybody."""


class Quota:
    """One rate of one rule: what a caller of one tier has."""

    __slots__ = ("_algorithm", "_capacity", "_figures", "_state", "atake", "decide", "denials", "name", "rate", "take")

    def __init__(self, name: str, rate: Rate, counter: Counter | LocalCounter | Leased, denials_us: int = 0) -> None:
        self.name = name
        self.rate = rate
        self._capacity = rate.capacity
        self.denials = Denials(denials_us)
        # Of a counter in memory, `decide`, `state` and `figures`; of another, `take` and `atake`; of one with leases, `decide`
        # as well, which decides what is in hand.
        self.decide: Any = getattr(counter, "decide", None)
        self.take: Any = getattr(counter, "take", None)
        self.atake: Any = getattr(counter, "atake", None)
        self._state: Any = getattr(counter, "state", None)
        self._figures: Any = getattr(counter, "figures", None)
        self._algorithm = BY_NAME[rate.algorithm]

    def part(self, caller: str, cost: int, taken: Taken) -> Part:
        """The figures of what was taken."""
        passes, found, at_us = taken
        state = found if type(found) is tuple else self._state(found, at_us)
        rate, algorithm = self.rate, self._algorithm
        if not passes:  # it may have been a while since a denial
            state = algorithm.current(state, rate, at_us)
        return Part(self.name, rate, algorithm.outcome(state, rate, cost, at_us, passes), caller)

    def parts(self, caller: str, cost: int, taken: Taken) -> tuple[Part]:
        """See `Asked.parts`."""
        return (self.part(caller, cost, taken),)

    def figures(self, cost: int, found: Any, at_us: int) -> tuple[int, int, int]:
        """See `Asked.figures`."""
        if type(found) is not tuple:
            figures: tuple[int, int, int] = self._figures(cost, found, at_us)
            return figures
        algorithm = self._algorithm
        remaining, reset_us = algorithm.left(algorithm.take(found, cost), self.rate, at_us)
        return self._capacity, remaining, reset_us

    def heed(self, caller: str, cost: int, now_us: int, taken: Taken) -> None:
        """Has the next checks of a denied caller be denied without another trip, for as long as that is known."""
        if taken[0]:
            if self.denials.known:
                self.denials.passed(caller)
        else:
            outcome = self.part(caller, cost, taken).outcome
            wait_us = outcome.retry_after_us
            if wait_us == NEVER and outcome.reset_after_us:  # the figures are others once nothing is used
                wait_us = outcome.reset_after_us
            self.denials.put(caller, cost, now_us, taken, wait_us)


class CommonQuota(Quota):
    """The same for everybody: whoever calls, it is counted for `EVERYBODY`."""

    def __init__(self, name: str, rate: Rate, counter: Counter | LocalCounter | Leased, denials_us: int = 0) -> None:
        super().__init__(name, rate, counter, denials_us)
        self.denials = NamedDenials(denials_us, lambda _: EVERYBODY)
        decide, take, atake = self.decide, self.take, self.atake
        if decide is not None:
            self.decide = lambda asked, _, cost, now_us: decide(asked, EVERYBODY, cost, now_us)
        self.take = lambda _, cost, now_us: take(EVERYBODY, cost, now_us)
        self.atake = lambda _, cost, now_us: atake(EVERYBODY, cost, now_us)

    def part(self, caller: str, cost: int, taken: Taken) -> Part:
        """See `Quota.part`."""
        return super().part(EVERYBODY, cost, taken)
