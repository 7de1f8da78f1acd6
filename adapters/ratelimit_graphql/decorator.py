"""`@graphql_ratelimit`: a limit on one resolver, mutation or subscription."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ratelimit import ConfigurationError, Limiter
from ratelimit.guard import Attributes
from ratelimit.plan import RuleLike
from ratelimit_graphql.flag import PassedOn
from ratelimit_graphql.info import Place, find_info
from ratelimit_graphql.limit import CostSource, FieldLimit, KeySource, RateSource, field_guard, refuse_callable_rule

F = TypeVar("F")

# Before 3.12 only asyncio knows the mark that asgiref puts on callables that are no `async def`.
_is_coroutine_function = (
    inspect.iscoroutinefunction if hasattr(inspect, "markcoroutinefunction") else asyncio.iscoroutinefunction
)


def graphql_ratelimit(
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
) -> Callable[[F], F]:
    """Limit how often one caller may have a field resolved; each alias of the field counts.

    Give exactly one of
    - `rule`: a category's name or `RateLimits.X`, a `Rule`, a `Policy` or the name of one; its budgets are shared with
      every other place that names it;
    - `rate`: rate text, a `Rate` or a category: a budget of this field's own at that rate. Or a callable
      `(root, info, **arguments)` that returns one of these, or None for "not limited".

    `key` says whose budget: a strategy's name or a callable `(root, info, **arguments)` returning a text or
    an `Identity`. Rules have their own `by` instead; they may look at `field`, `operation` and what `attributes`
    (a mapping, or a callable giving one) tells. `group` names the budget of a `rate`, by default the field's:
    `graphql:Query.documents`. `cost` is the units that one call takes, also as a callable. With `block=False` a
    denied field is resolved all the same and finds `request.limited` True. `request.limit_key` is the caller whose
    budget it spends. With `per_event`, each event of a subscription takes the cost, too, from the same budget; a denied
    event ends the subscription with the error. `limiter` defaults to the process-wide one, asked for at each call.

    A denied field raises `RateLimitExceeded`. What cannot be used is a `ConfigurationError` at decoration.
    Works on functions, static and class methods, `async def` and async generators (limited when the client
    subscribes; the decorated one is a coroutine function that returns the generator). An `async def` never
    blocks the event loop; a plain function asks the store on the thread it runs on. One round trip per call.
    """
    refuse_callable_rule(rule, "graphql_ratelimit")
    guard = field_guard(rule, rate=rate, key=key, group=group, cost=cost, attributes=attributes, limiter=limiter)
    limit = FieldLimit(guard, block=block, per_event=per_event)

    def decorate(resolver: F) -> F:
        if isinstance(resolver, (staticmethod, classmethod)):
            method: Any = resolver
            return cast(F, type(method)(_limited(method.__func__, limit)))
        return cast(F, _limited(resolver, limit))

    return decorate


def _limited(resolver: Any, limit: FieldLimit) -> Callable[..., Any]:
    if not callable(resolver) or inspect.isclass(resolver):
        raise ConfigurationError(f"graphql_ratelimit limits a resolver function or method, not {resolver!r}")
    named = resolver.func if isinstance(resolver, functools.partial) else resolver
    owner = f"{named.__module__}.{getattr(named, '__qualname__', type(named).__qualname__)}"
    place = find_info(resolver, owner)
    return (_wrap_async if _is_async(resolver) else _wrap_sync)(resolver, limit, place)


def _is_async(resolver: Any) -> bool:
    called = (resolver, type(resolver).__call__)  # the latter for an object whose class has `async def __call__`
    return any(inspect.isasyncgenfunction(one) or _is_coroutine_function(one) for one in called)


def _wrap_sync(resolver: Callable[..., Any], limit: FieldLimit, place: Place) -> Callable[..., Any]:
    @functools.wraps(resolver)
    def limited(*args: Any, **kwargs: Any) -> Any:
        call = place.take(args, kwargs)
        decision = limit.check(call, place.owner)
        with PassedOn(decision):
            return limit.events(resolver(*args, **kwargs), call, place.owner)

    return limited


def _wrap_async(resolver: Callable[..., Any], limit: FieldLimit, place: Place) -> Callable[..., Any]:
    @functools.wraps(resolver)
    async def limited(*args: Any, **kwargs: Any) -> Any:
        call = place.take(args, kwargs)
        decision = await limit.acheck(call, place.owner)
        with PassedOn(decision):
            result = resolver(*args, **kwargs)
            # An async generator is handed over: graphql-core iterates it.
            return limit.events(await result if inspect.isawaitable(result) else result, call, place.owner)

    return limited
