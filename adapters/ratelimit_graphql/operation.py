"""An operation that a limit is asked about, and the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ratelimit import Decision
from ratelimit_graphql.errors import OperationLimitExceeded

INVALID: Final = "invalid"
"""The kind of a document that cannot be executed."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, as callables see it.

    `kind` is `query`, `mutation` or `subscription`, or `invalid` for a document that cannot be executed. `name` and
    `variables` are what the client sent. `cost` is what was counted.
    """

    context: Any
    kind: str
    name: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    cost: int = 0


class Verdict(NamedTuple):
    """What was decided on an operation, and what it costs. True if it may be executed."""

    decision: Decision
    cost: int

    def __bool__(self) -> bool:
        return self.decision.allowed

    @property
    def error(self) -> OperationLimitExceeded | None:
        """The error to answer with; None for an operation that may be executed."""
        return None if self.decision.allowed else OperationLimitExceeded(self.decision, self.cost)
