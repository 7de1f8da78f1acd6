"""Several plain rates in memory, taken together: all or none, without a general transaction around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ratelimit.decision import Asked, Decision, taken
from ratelimit.stores.base import Callers, Share, Taken
from ratelimit.stores.keeper import Keeper
from ratelimit.stores.memory_counters import AnyCounter


class MemoryJoint:
    """Some rates, each counted under a head of its own. See `Store.joint`.

    The short way is for callers who are at hand in fixed windows, and have units left after the call; as for a single counter.
    """

    __slots__ = ("_counters", "_keeper", "_numbered")

    def __init__(self, keeper: Keeper, shares: Sequence[Share]) -> None:
        self._keeper = keeper
        self._counters = [(AnyCounter(keeper, share.head, share.rate), share.weight) for share in shares]
        self._numbered = all(share.rate.algorithm == "fixed" for share in shares)

    def decide(self, asked: Asked, callers: Callers, cost: int, now_us: int) -> Decision:
        """See `LocalJointCounter.decide`."""
        each = (callers,) * len(self._counters) if isinstance(callers, str) else callers
        with self._keeper.lock:
            found = self._taken_at_hand(each, cost, now_us) if self._numbered else None
            if found is None:
                found = self._taken(each, cost, now_us)
        return taken(asked, callers, cost, found)

    def each(self, found: Any, at_us: int) -> Sequence[Taken]:
        """See `JointCounter.each`."""
        return [(True, (one,), at_us) if type(one) is int else one for one in found]

    def _taken_at_hand(self, callers: Sequence[str], cost: int, now_us: int) -> Taken | None:
        before = []
        for (counter, weight), caller in zip(self._counters, callers, strict=True):
            table = counter.table
            used = table.recent.get(caller) if table.since_us <= now_us < table.until_us else None
            if used is None or used + cost * weight >= counter.rate.limit:
                return None
            before.append(used)
        for (counter, weight), caller, used in zip(self._counters, callers, before, strict=True):
            counter.table.recent[caller] = used + cost * weight
        return True, before, now_us

    def _taken(self, callers: Sequence[str], cost: int, now_us: int) -> Taken:
        asked = [
            (counter, caller, cost * weight) for (counter, weight), caller in zip(self._counters, callers, strict=True)
        ]
        found = [counter.look(caller, units, now_us) for counter, caller, units in asked]
        every = all(passes for passes, _, _ in found)
        if every:
            for (counter, caller, units), (_, before, _) in zip(asked, found, strict=True):
                counter.keep(caller, before, units, now_us)
        return every, found, now_us
