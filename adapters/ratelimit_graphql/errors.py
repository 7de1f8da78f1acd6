"""The error that a limited field answers with."""

from __future__ import annotations

from graphql import GraphQLError

import ratelimit
from ratelimit import Decision

CODE = "RATE_LIMITED"


class RateLimitExceeded(ratelimit.RateLimitExceeded, GraphQLError):
    """A denied field: `Limit exceeded: Max 10 requests per minute. Please try again later.`

    `extensions` holds `code` (always `RATE_LIMITED`), `retry_after` (whole seconds, rounded up; null when
    waiting will not help, as for a cost above the limit) and `limit` (units per window). `decision` has all
    the figures. The executor adds the field's path and location.
    """

    def __init__(self, decision: Decision) -> None:
        # Not by way of the core's class: GraphQLError's own call of super() must end at Exception.
        GraphQLError.__init__(self, decision.exceeded_message(), extensions=_extensions(decision))
        self.decision = decision


class OperationLimitExceeded(RateLimitExceeded):
    """A denied operation: nothing of it was executed. `extensions` hold its `cost` besides.

    The text of one that costs more than the limit says so: `Operation too expensive: it costs 120, the limit is 100.`
    """

    def __init__(self, decision: Decision, cost: int) -> None:
        super().__init__(decision)
        self.cost = cost
        self.extensions = {**_extensions(decision), "cost": cost}
        if decision.retry_after is None:
            self.message = f"Operation too expensive: it costs {cost}, the limit is {decision.limit}."
            self.args = (self.message,)

    def __reduce__(self) -> tuple[type[OperationLimitExceeded], tuple[object, ...]]:
        return type(self), (self.decision, self.cost)


def _extensions(decision: Decision) -> dict[str, object]:
    return {"code": CODE, "retry_after": decision.retry_after_seconds, "limit": decision.limit}
