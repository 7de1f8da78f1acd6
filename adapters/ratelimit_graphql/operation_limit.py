"""A limit on whole operations: one check before any resolver runs, at the operation's cost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from graphql import DocumentNode, GraphQLSchema

from ratelimit import ConfigurationError, Decision, Identity, Limiter, Rate
from ratelimit.decision import Part, decided
from ratelimit.guard import Attributes, Guard
from ratelimit.outcome import NEVER, Outcome
from ratelimit.plan import RuleLike
from ratelimit_graphql.context import aidentify, identify
from ratelimit_graphql.cost import Counter, Document, chosen
from ratelimit_graphql.operation import INVALID, Operation, Verdict
from ratelimit_graphql.prices import FieldCosts, check_named_cost
from ratelimit_graphql.response import show_operation

logger = logging.getLogger("ratelimit.graphql")

GROUP: Final = "graphql:operations"


class OperationLimit:
    """How much one caller may have executed: an operation takes its cost from one budget, in one round trip.

    `rule`, `rate`, `key`, `group`, `attributes` and `limiter` are those of `graphql_ratelimit`; callables get the
    `Operation` alone. An operation costs `default_cost` for each field, and `field_costs["Type.field"]` for those named
    there. What is under a field counts as often as its arguments named in `multipliers` (`("first", "last")`) say.
    `cost` is what an operation costs instead: a number, or a callable that finds what was counted in `operation.cost`.
    One that costs more than `max_cost`, or than the limit, is refused whatever is left, and takes nothing. Introspection is
    free unless `count_introspection`. A document that cannot be executed costs `invalid_cost`, and its own error is the
    answer. `status` is that of a refusal over HTTP: 200, or 429, which has `Retry-After`.

    `ConfigurationError` for anything of this that cannot be used, when it is made; for a price of a field that a schema
    does not have, when that schema is first seen.
    """

    def __init__(
        self,
        rule: RuleLike | None = None,
        *,
        rate: RuleLike | Callable[[Operation], RuleLike | None] | None = None,
        key: str | Callable[[Operation], str | Identity] = "user_or_ip",
        group: str | None = None,
        cost: int | Callable[[Operation], int] | None = None,
        field_costs: Mapping[str, int] | None = None,
        default_cost: int = 1,
        multipliers: Collection[str] = (),
        max_cost: int | None = None,
        count_introspection: bool = False,
        invalid_cost: int = 1,
        status: int = 200,
        attributes: Attributes | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        if status not in (200, 429):
            raise ConfigurationError(f"status={status!r} is neither 200 nor 429")
        fixed = {"cost": 0 if cost is None or callable(cost) else cost, "invalid_cost": invalid_cost}
        for name, value in {**fixed, "max_cost": 0 if max_cost is None else max_cost}.items():
            check_named_cost(name, value)
        self._guard = Guard(
            rule,
            rate=rate,
            key=key,
            group=group,
            cost=lambda operation: operation.cost,
            attributes=attributes,
            facts=_facts,
            protocol="graphql",
            limiter=limiter,
        )
        self._cost = cost
        self._field_costs = FieldCosts(field_costs, default_cost)
        self._multipliers = _names(multipliers)
        self._max_cost = max_cost
        self._introspection = count_introspection
        self._invalid_cost = invalid_cost
        self.status = status

    @property
    def limiter(self) -> Limiter:
        """The limiter that is asked: the given one, else the process's."""
        return self._guard.limiter

    def check_schema(self, schema: GraphQLSchema) -> None:
        """Raises `ConfigurationError` for a price of a field that `schema` does not have."""
        self._field_costs.of(schema)

    def cost_of(
        self,
        schema: GraphQLSchema,
        document: DocumentNode | Document,
        variables: Mapping[str, Any] | None = None,
        operation_name: str | None = None,
        context: Any = None,
    ) -> int | None:
        """What an operation costs, None if the document has no such operation. Nothing is taken."""
        operation = self._operation(schema, document, context, variables, operation_name)
        return None if operation is None else operation.cost

    def check(
        self,
        schema: GraphQLSchema,
        document: DocumentNode | Document,
        context: Any = None,
        variables: Mapping[str, Any] | None = None,
        operation_name: str | None = None,
    ) -> Verdict:
        """Takes the cost of the operation that is about to be executed; one round trip.

        `document` is parsed and, as a rule, valid. One without the named operation counts as invalid and passes: the
        executor's error is the answer.
        """
        operation = self._operation(schema, document, context, variables, operation_name)
        if operation is None:
            self.count_invalid(context)
            return Verdict(self.limiter.unlimited("unknown operation"), 0)
        identity = identify(context, self.limiter.settings)
        decision = self._too_dear(operation, identity)
        if decision is None:
            decision = self._guard.check(identity, GROUP, operation)
        return Verdict(decision, operation.cost)

    async def acheck(
        self,
        schema: GraphQLSchema,
        document: DocumentNode | Document,
        context: Any = None,
        variables: Mapping[str, Any] | None = None,
        operation_name: str | None = None,
    ) -> Verdict:
        """`check` for an event loop."""
        operation = self._operation(schema, document, context, variables, operation_name)
        if operation is None:
            await self.acount_invalid(context)
            return Verdict(self.limiter.unlimited("unknown operation"), 0)
        identity = await aidentify(context, self.limiter.settings)
        decision = self._too_dear(operation, identity)
        if decision is None:
            decision = await self._guard.acheck(identity, GROUP, operation)
        return Verdict(decision, operation.cost)

    def count_invalid(self, context: Any = None) -> None:
        """Takes `invalid_cost` for a document that cannot be executed, as far as the budget has it."""
        if self._invalid_cost:
            identity = identify(context, self.limiter.settings)
            self._guard.check(identity, GROUP, Operation(context, INVALID, cost=self._invalid_cost))

    async def acount_invalid(self, context: Any = None) -> None:
        """`count_invalid` for an event loop."""
        if self._invalid_cost:
            identity = await aidentify(context, self.limiter.settings)
            await self._guard.acheck(identity, GROUP, Operation(context, INVALID, cost=self._invalid_cost))

    def answer(self, context: Any, verdict: Verdict) -> None:
        """Has the response tell of `verdict`, and raises its error if the operation is refused."""
        show_operation(context, verdict.decision, self.limiter.settings.headers, self.status)
        if verdict.error is not None:
            raise verdict.error

    def _operation(
        self,
        schema: GraphQLSchema,
        document: DocumentNode | Document,
        context: Any,
        variables: Mapping[str, Any] | None,
        operation_name: str | None,
    ) -> Operation | None:
        found = document if isinstance(document, Document) else chosen(document, operation_name)
        if found is None:
            return None
        variables = variables if isinstance(variables, Mapping) else {}
        prices = self._field_costs.of(schema)
        counter = Counter(schema, found, variables, prices, self._multipliers, self._introspection)
        node = found.operation
        name = node.name.value if node.name else None
        operation = Operation(context, node.operation.value, name, variables, counter.total())
        if self._cost is None:
            return operation
        return replace(operation, cost=self._cost(operation) if callable(self._cost) else self._cost)

    def _too_dear(self, operation: Operation, identity: Identity) -> Decision | None:
        """The refusal of an operation above `max_cost`, for which no store is asked."""
        most = self._max_cost
        if most is None or operation.cost <= most or self.limiter.settings.disable:
            return None
        key = identity.key()
        logger.warning("an operation of %s costs %d, above max_cost=%d", key, operation.cost, most)
        outcome = Outcome(False, most, most, NEVER, 0)
        return decided([Part("max_cost", Rate(most, 1), outcome, key)])


def _facts(operation: Operation) -> Mapping[str, Any]:
    """What rules may know of an operation: its kind. Its name is the client's own, and no fact."""
    return {"operation": operation.kind}


def _names(multipliers: Collection[str]) -> tuple[str, ...]:
    names = () if isinstance(multipliers, str) else tuple(multipliers)
    if isinstance(multipliers, str) or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f'multipliers={multipliers!r} is no list of arguments; write ("first", "last")')
    return names


def given_limit(limit: object, where: str = "") -> OperationLimit:
    """`limit`. Raises `ConfigurationError`, which begins with `where`, if it is anything else than an `OperationLimit`."""
    if isinstance(limit, OperationLimit):
        return limit
    raise ConfigurationError(f"{where}operation_limit={limit!r} is no OperationLimit")
