"""The form for Strawberry fields: an extension, which needs no `info` in the resolver's signature.

    @strawberry.field(extensions=[RateLimitExtension(rate="10/m")])
    def documents(self) -> list[Document]: ...

It takes the arguments of `graphql_ratelimit`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from strawberry.extensions import FieldExtension

from ratelimit import Limiter
from ratelimit.guard import Attributes
from ratelimit.plan import RuleLike
from ratelimit_graphql.flag import PassedOn
from ratelimit_graphql.info import Call
from ratelimit_graphql.limit import CostSource, FieldLimit, KeySource, RateSource, refuse_callable_rule


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
        limiter: Limiter | None = None,
    ) -> None:
        refuse_callable_rule(rule, "RateLimitExtension")
        self._limit = FieldLimit(
            rule, rate=rate, key=key, group=group, cost=cost, attributes=attributes, block=block, limiter=limiter
        )

    def resolve(self, next_: Callable[..., Any], source: Any, info: Any, /, **kwargs: Any) -> Any:
        """Check, then resolve: for plain resolvers."""
        decision = self._limit.check(Call(source, info, (), kwargs), info.python_name)
        with PassedOn(decision):
            return next_(source, info, **kwargs)

    async def resolve_async(self, next_: Callable[..., Any], source: Any, info: Any, /, **kwargs: Any) -> Any:
        """Check without blocking the event loop, then resolve: for `async def` and subscriptions."""
        decision = await self._limit.acheck(Call(source, info, (), kwargs), info.python_name)
        with PassedOn(decision):
            result = next_(source, info, **kwargs)
            return await result if inspect.isawaitable(result) else result
