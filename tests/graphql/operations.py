"""What applications with a limit on whole operations have in common, whatever library serves them: limits and what is asked."""

from __future__ import annotations

from typing import Any

from ratelimit_graphql import OperationLimit

QUIET = OperationLimit(rate="10/m", field_costs={"Mutation.login": 3}, max_cost=9)
LOUD = OperationLimit(rate="10/m", max_cost=9, status=429)
ran: list[str] = []
"""The names of the fields that were resolved in this test; see the fixture `nothing_ran`."""


def pings(number: int) -> str:
    """A query of so many fields."""
    return "{ " + " ".join(f"a{n}: ping" for n in range(number)) + " }"


def refusal(cost: int, wait: int | None = 60) -> dict[str, Any]:
    """The error of an operation of that cost that was refused."""
    return {
        "message": "Limit exceeded: Max 10 requests per minute. Please try again later.",
        "extensions": {"code": "RATE_LIMITED", "retry_after": wait, "limit": 10, "cost": cost},
    }
