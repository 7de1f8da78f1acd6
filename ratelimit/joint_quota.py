"""Several rates that are asked together, as checks meet them: their counter, their figures, and the denials that are known.

Rules:
- A denial is known until the longest wait among the rates that refused is over: until then one of them refuses.
- The rest is as for a single rate (`quota.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ratelimit.algorithms.base import BY_NAME
from ratelimit.decision import Decision, Part, strictest
from ratelimit.denials import Denials, NamedDenials
from ratelimit.errors import ConfigurationError
from ratelimit.rates import MAX_LIMIT
from ratelimit.stores.base import Callers, JointCounter, LocalJointCounter, Share, Taken


class JointQuota:
    """Several rates: what a caller of one tier has. `named` gives the callers of a text that names one, where they are not just
    that text; `counter` is None if the store has none."""

    __slots__ = ("_most", "_named", "_parts", "atake", "counter", "decide", "denials", "take")

    def __init__(
        self,
        counter: JointCounter | LocalJointCounter | None,
        names: Sequence[str],
        shares: Sequence[Share],
        named: Callable[[str], Callers] | None,
        denials_us: int = 0,
    ) -> None:
        self.denials = Denials(denials_us) if named is None else NamedDenials(denials_us, named)
        self.decide: Any = self._decide if hasattr(counter, "decide") else None
        self.counter: Any = counter
        self._parts = [(name, share.rate, share.weight) for name, share in zip(names, shares, strict=True)]
        self._most = MAX_LIMIT // max(share.weight for share in shares)
        self._named = named
        self.take: Any = self._take
        self.atake: Any = self._atake
        if named is None and self._most == MAX_LIMIT:  # there is nothing to look at before
            self.take, self.atake = getattr(counter, "take", None), getattr(counter, "atake", None)

    def _decide(self, asked: JointQuota, callers: Callers, cost: int, now_us: int) -> Decision:
        decision: Decision = self.counter.decide(self, self._callers(callers, cost), cost, now_us)
        return decision

    def _take(self, callers: Callers, cost: int, now_us: int) -> Taken:
        """See `JointCounter.take`."""
        found: Taken = self.counter.take(self._callers(callers, cost), cost, now_us)
        return found

    async def _atake(self, callers: Callers, cost: int, now_us: int) -> Taken:
        """See `JointCounter.atake`."""
        found: Taken = await self.counter.atake(self._callers(callers, cost), cost, now_us)
        return found

    def parts(self, callers: Callers, cost: int, taken: Taken) -> list[Part]:
        """The figures of what was taken; of a call that was refused, those that it found."""
        every, found, at_us = taken
        callers = self._callers(callers, cost)
        each = (callers,) * len(self._parts) if isinstance(callers, str) else callers
        parts = []
        for (name, rate, weight), caller, (_, state, us) in zip(
            self._parts, each, self.counter.each(found, at_us), strict=True
        ):
            algorithm, needed = BY_NAME[rate.algorithm], cost * weight
            if not every:  # it may have been a while since the denial, and of a lower cost
                state = algorithm.current(state, rate, us)
                if algorithm.passes(state, rate, needed, us):
                    needed = 0
            parts.append(Part(name, rate, algorithm.outcome(state, rate, needed, us, every), caller))
        return parts

    def figures(self, cost: int, found: Any, at_us: int) -> None:
        """See `Asked.figures`: which rate they are of takes all parts to tell."""

    def heed(self, callers: Callers, cost: int, now_us: int, taken: Taken) -> None:
        """See `Quota.heed`."""
        if taken[0]:
            if self.denials.known:
                self.denials.passed(callers)
        else:
            wait_us = strictest(self.parts(callers, cost, taken)).outcome.retry_after_us
            self.denials.put(callers, cost, now_us, taken, wait_us)

    def _callers(self, callers: Callers, cost: int) -> Callers:
        if cost > self._most:
            name, _, weight = next(part for part in self._parts if part[2] * cost > MAX_LIMIT)
            raise ConfigurationError(f"rule {name!r}: cost {weight} times {cost} is more than {MAX_LIMIT}")
        return self._named(callers) if self._named is not None and isinstance(callers, str) else callers
