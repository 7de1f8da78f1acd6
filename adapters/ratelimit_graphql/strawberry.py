"""The form for Strawberry fields: an extension, which needs no `info` in the resolver's signature.

    @strawberry.field(extensions=[RateLimitExtension(rate="10/m")])
    def documents(self) -> list[Document]: ...

It takes the arguments of `graphql_ratelimit`. A schema's operations as wholes are limited by

    strawberry.Schema(Query, extensions=[lambda: OperationLimitExtension(OperationLimit(rate="500/m"))])
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from strawberry.extensions import FieldExtension, SchemaExtension

from ratelimit import ConfigurationError, Limiter
from ratelimit.guard import Attributes
from ratelimit.plan import RuleLike
from ratelimit_graphql.flag import PassedOn
from ratelimit_graphql.info import Call
from ratelimit_graphql.limit import CostSource, FieldLimit, KeySource, RateSource, field_guard, refuse_callable_rule
from ratelimit_graphql.operation_limit import OperationLimit, given_limit


class RateLimitExtension(FieldExtension):  # type: ignore[misc]  # pyright: ignore[reportUntypedBaseClass]
    """A limit on any Strawberry field, also on one without a resolver.

    The last extension of a field runs first. One extension may serve several fields: each has its own budget
    unless `rule` or `group` say otherwise.
    """

    def __init__(
        self,
        rule: RuleLike | None = None,
        *,
        rate: RateSource | None = None,
        key: KeySource = "user_or_ip",
        group: str | None = None,
        cost: CostSource = 1,
        attributes: Attributes | None = None,
        block: bool = True,
        per_event: bool = False,
        limiter: Limiter | None = None,
    ) -> None:
        refuse_callable_rule(rule, "RateLimitExtension")
        self._per_event = per_event
        guard = field_guard(rule, rate=rate, key=key, group=group, cost=cost, attributes=attributes, limiter=limiter)
        self._limit = FieldLimit(guard, block=block, per_event=per_event)

    def apply(self, field: Any) -> None:
        """Refuses `per_event` on a field that is no subscription's, when the schema is made."""
        if self._per_event and not field.is_subscription:
            raise ConfigurationError(f"per_event=True on {field.python_name}, which is no subscription")

    def resolve(self, next_: Callable[..., Any], source: Any, info: Any, /, **kwargs: Any) -> Any:
        """Check, then resolve: for plain resolvers."""
        call = Call(source, info, (), kwargs)
        decision = self._limit.check(call, info.python_name)
        with PassedOn(decision):
            return self._limit.events(next_(source, info, **kwargs), call, info.python_name)

    async def resolve_async(self, next_: Callable[..., Any], source: Any, info: Any, /, **kwargs: Any) -> Any:
        """Check without blocking the event loop, then resolve: for `async def` and subscriptions."""
        call = Call(source, info, (), kwargs)
        decision = await self._limit.acheck(call, info.python_name)
        with PassedOn(decision):
            result = next_(source, info, **kwargs)
            return self._limit.events(await result if inspect.isawaitable(result) else result, call, info.python_name)


class OperationLimitExtension(SchemaExtension):  # type: ignore[misc]  # pyright: ignore[reportUntypedBaseClass]
    """A limit on each operation of a schema, for `execute` and async views. Others take `SyncOperationLimitExtension`.

    Strawberry makes one for each operation: `extensions=[lambda: OperationLimitExtension(limit)]`. The limit is asked once
    the document is valid, before any resolver. A subscription takes its cost when it begins.
    """

    def __init__(self, limit: OperationLimit) -> None:
        self._limit = given_limit(limit)
        self._asked = False
        self._begun = False

    async def on_operation(self) -> AsyncIterator[None]:
        """Counts a document that turned out not to be executable."""
        self._begun = _first(self._begun)
        try:
            yield
        finally:
            if not self._asked:
                await self._limit.acount_invalid(self.execution_context.context)

    async def on_execute(self) -> AsyncIterator[None]:
        """Asks, and raises the refusal."""
        self._asked = True
        verdict = await self._limit.acheck(*_asked(self.execution_context))
        self._limit.answer(self.execution_context.context, verdict)
        yield


class SyncOperationLimitExtension(SchemaExtension):  # type: ignore[misc]  # pyright: ignore[reportUntypedBaseClass]
    """`OperationLimitExtension` for `execute_sync`, as Strawberry's sync views for Django and Flask call it."""

    def __init__(self, limit: OperationLimit) -> None:
        self._limit = given_limit(limit)
        self._asked = False
        self._begun = False

    def on_operation(self) -> Iterator[None]:
        """Counts a document that turned out not to be executable."""
        self._begun = _first(self._begun)
        try:
            yield
        finally:
            if not self._asked:
                self._limit.count_invalid(self.execution_context.context)

    def on_execute(self) -> Iterator[None]:
        """Asks, and raises the refusal."""
        self._asked = True
        verdict = self._limit.check(*_asked(self.execution_context))
        self._limit.answer(self.execution_context.context, verdict)
        yield


def _asked(execution: Any) -> tuple[Any, ...]:
    """What `OperationLimit.check` asks for, of Strawberry's execution context."""
    schema = execution.schema._schema
    return schema, execution.graphql_document, execution.context, execution.variables, execution.operation_name


def _first(begun: bool) -> bool:
    """True. `ConfigurationError` for a second operation: Strawberry would mix up what belongs to either."""
    if begun:
        raise ConfigurationError("one extension serves one operation: write extensions=[lambda: ...Extension(limit)]")
    return True
