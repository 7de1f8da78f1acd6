"""Spending what a request costs, and nothing twice where limits stand one within another.

Rules:
- What a request has spent is known to whatever answers it: the server's own middleware, a decorated tool.
- It is the same budget if limiter, rule, group and caller are the same, whatever it costs in either place: the outer one counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias

from ratelimit import Call, Decision, Identity, Limiter
from ratelimit_mcp.limit import Budget
from ratelimit_mcp.limits import Cost, Kind

Place: TypeAlias = tuple[Any, ...]

_spent: ContextVar[frozenset[Place]] = ContextVar("mcp_spent", default=frozenset())


class Spending(NamedTuple):
    """What a request costs its caller, at one limiter."""

    limiter: Limiter
    costs: Sequence[Cost]
    identity: Identity

    async def decide(self) -> Decision | None:
        """The decision on everything that the request has yet to spend, None if nothing is counted. At most one round
        trip."""
        known, costs = _spent.get(), self.costs
        if known:
            costs = [cost for cost in costs if self._place(cost) not in known]
        if not costs:
            return None
        limiter, policies = self.limiter, self.limiter.policies
        if len(costs) == 1:
            rule, caller, group, units, key, _ = _call(costs[0], self.identity, policies)
            decision = await limiter.acheck(rule, caller, key=key, group=group, cost=units, protocol="mcp")
        else:
            decision = await limiter.acheck_many(
                [_call(cost, self.identity, policies) for cost in costs], protocol="mcp"
            )
        return decision if decision.counted else None

    @contextmanager
    def done(self) -> Iterator[None]:
        """Within it, the costs have been spent."""
        if not self.costs:
            yield
            return
        token = _spent.set(_spent.get() | {self._place(cost) for cost in self.costs})
        try:
            yield
        finally:
            _spent.reset(token)

    def _place(self, cost: Cost) -> Place:
        return _place(self.limiter, cost.budget, self.identity, cost.kind)


def is_spent(limiter: Limiter, budget: Budget, identity: Identity, tool: str) -> bool:
    """Whether the request that is being answered has spent from the caller's `budget`, by rules for calling `tool`."""
    known = _spent.get()
    return bool(known) and _place(limiter, budget, identity, Kind("tools/call", "tool", tool)) in known


def _place(limiter: Limiter, budget: Budget, identity: Identity, kind: Kind | None) -> Place:
    if budget.by_rules:  # which say themselves who is counted, and may look at the kind of call
        return limiter, budget, identity, kind
    return limiter, budget.rule, budget.group, identity.key(budget.key)


def _call(cost: Cost, identity: Identity, policies: Any) -> Call:
    if cost.kind is not None:
        identity = identity.having(**cost.kind.attributes())
    budget = cost.budget
    return Call(budget.rule, identity, budget.group, cost.affordable(policies), budget.key)
