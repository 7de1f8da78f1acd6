"""A limit on a field: the engine's answer, said in GraphQL's words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any

from ratelimit import ConfigurationError, Decision, Identity
from ratelimit.guard import Guard
from ratelimit.plan import RuleLike
from ratelimit_graphql.context import aidentify, identify
from ratelimit_graphql.errors import RateLimitExceeded
from ratelimit_graphql.events import counted_events, refuse_no_stream
from ratelimit_graphql.flag import flag, tell_key
from ratelimit_graphql.info import Call, field_group, field_name, operation_name
from ratelimit_graphql.response import show_field

RateSource = RuleLike | Callable[..., RuleLike | None]
KeySource = str | Callable[..., str | Identity]
CostSource = int | Callable[..., int]
"""What may be given in place of a fixed value: a callable `(root, info, **arguments)`."""


class FieldLimit:
    """What one decorator or extension holds. A refusal raises `RateLimitExceeded` or sets `limited`."""

    def __init__(self, guard: Guard, *, block: bool, per_event: bool) -> None:
        self._guard = guard
        self._block = block
        self._per_event = per_event

    def check(self, call: Call, owner: str) -> Decision:
        """Ask and answer, on the calling thread; one store round trip."""
        identity = identify(call.info.context, self._guard.limiter.settings)
        group = field_group(call.info, owner)
        decision = self._guard.check(identity, group, call.root, call.info, *call.args, **call.kwargs)
        return self._answer(call, decision)

    async def acheck(self, call: Call, owner: str) -> Decision:
        """As `check`, without blocking the event loop."""
        identity = await aidentify(call.info.context, self._guard.limiter.settings)
        group = field_group(call.info, owner)
        decision = await self._guard.acheck(identity, group, call.root, call.info, *call.args, **call.kwargs)
        return self._answer(call, decision)

    def events(self, result: Any, call: Call, owner: str) -> Any:
        """What a resolver gave, its events counted if each is to be."""
        if not self._per_event:
            return result
        if isawaitable(result):
            return self._awaited_events(result, call, owner)
        refuse_no_stream(result, owner)
        return counted_events(result, lambda: self.acheck(call, owner))

    async def _awaited_events(self, result: Awaitable[Any], call: Call, owner: str) -> Any:
        return self.events(await result, call, owner)

    def _answer(self, call: Call, decision: Decision) -> Decision:
        show_field(call.info.context, decision, self._guard.limiter.settings.headers)
        if not self._block:
            flag(call.info.context, decision)
            return decision
        tell_key(call.info.context, decision)
        if not decision:
            raise RateLimitExceeded(decision)
        return decision


def _facts(root: Any, info: Any, /, *_: Any, **__: Any) -> Mapping[str, Any]:
    """What rules may know of a call: its field (`Query.documents`) and the kind of its operation."""
    found = {"field": field_name(info), "operation": operation_name(info)}
    return {name: value for name, value in found.items() if value is not None}


field_guard = partial(Guard, facts=_facts, protocol="graphql")
"""A guard of fields: what it is given is what `graphql_ratelimit` takes."""


def refuse_callable_rule(rule: Any, form: str) -> None:
    """`ConfigurationError` for a function or class as rule: `@graphql_ratelimit` without its parentheses."""
    if callable(rule):
        name = getattr(rule, "__qualname__", rule)
        raise ConfigurationError(
            f"{form} was given {name} where a rule belongs: write @{form}(...) with parentheses; "
            "a rate that depends on the caller is rate=<callable>"
        )
