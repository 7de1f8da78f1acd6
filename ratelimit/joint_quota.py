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

    __slots__ = ("_most", "_named", "_parts", "counter", "decide", "denials")

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

    def _decide(self, asked: JointQuota, callers: Callers, cost: int, now_us: int) -> Decision:
        decision: Decision = self.counter.decide(self, self._callers(callers, cost), cost, now_us)
        return decision

    def take(self, callers: Callers, cost: int, now_us: int) -> Taken:
        """See `JointCounter.take`."""
        found: Taken = self.counter.take(self._callers(callers, cost), cost, now_us)
        return found

    async def atake(self, callers: Callers, cost: int, now_us: int) -> Taken:
        """`take` for an event loop."""
        found: Taken = await self.counter.atake(self._callers(callers, cost), cost, now_us)
        return found

    def parts(self, callers: Callers, cost: int, taken: Taken) -> list[Part]:
        """The figures of what was taken; of a call that was refused, those that it found."""
        every, found, at_us = taken
        callers = self._callers(callers, cost)
        each = (callers,) * len(self._parts) if isinstance(callers, str) else callers
        parts = []
        for (name, rate, weight), caller, (passes, state, us) in zip(
            self._parts, each, self.counter.each(found, at_us), strict=True
        ):
            algorithm = BY_NAME[rate.algorithm]
            needed = cost * weight if every or not passes else 0
            if not every:  # it may have been a while since the denial
                state = algorithm.current(state, rate, us)
            parts.append(Part(name, rate, algorithm.outcome(state, rate, needed, us, every), caller))
        return parts

    def figures(self, cost: int, found: Any, at_us: int) -> None:
        """See `Asked.figures`: which rate they are of takes all parts to tell."""

    def heed(self, callers: Callers, cost: int, now_us: int, taken: Taken) -> None:
        """See `Quota.heed`."""
        if not taken[0]:
            wait_us = strictest(self.parts(callers, cost, taken)).outcome.retry_after_us
            self.denials.put(callers, cost, now_us, taken, wait_us)

    def _callers(self, callers: Callers, cost: int) -> Callers:
        if cost > self._most:
            name, _, weight = next(part for part in self._parts if part[2] * cost > MAX_LIMIT)
            raise ConfigurationError(f"rule {name!r}: cost {weight} times {cost} is more than {MAX_LIMIT}")
        return self._named(callers) if self._named is not None and isinstance(callers, str) else callers
