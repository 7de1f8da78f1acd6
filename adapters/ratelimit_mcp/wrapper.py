"""The ASGI wrapper: a global cap and a limit per tool in front of any MCP application."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import iscoroutinefunction

from ratelimit import Call, ConfigurationError, Decision, Identity, Limiter, get_limiter
from ratelimit.headers import raw_headers
from ratelimit_mcp.answer import (
    ERROR_CODE,
    answer,
    denial_body,
    denial_error,
    refuse,
    valid_error_code,
    with_headers,
)
from ratelimit_mcp.asgi import ASGIApp, Receive, Scope, Send, may_hold_a_call
from ratelimit_mcp.body import read_body, replayed
from ratelimit_mcp.caller import Caller, current_caller, identify
from ratelimit_mcp.calls import RpcBody, parse_body
from ratelimit_mcp.context import mcp_scope
from ratelimit_mcp.limits import DEFAULT_EXEMPT, Cost, Limit, Limits
from ratelimit_mcp.refusal import RefusalError

MAX_BODY = 1_000_000
"""Bytes of a request's body that are held in memory to look at."""


class MCPRateLimit:
    """An MCP application that answers 429 when a call is over the global cap or over its tool's limit.

    `app` is any MCP ASGI application. `tools` maps a tool's name to a category (whose budget it then shares), to a rate
    (a budget of its own), or to a `Rule` or `Policy`, which may look at `tool` and `method`; `global_limit`, None for no
    cap, is one of these too and holds for every call. `limiter` defaults to the process-wide one. `caller` tells who
    calls from the ASGI scope. `max_body` is in bytes; larger ones are answered 413. `error_code` is the JSON-RPC code of
    a denial. `exempt` are methods that count for nothing, besides those a client connects with. `any_content_type` is
    for an application that runs calls whatever their Content-Type is.

    All limits of a request hold together: if one denies, none is spent. A batch runs whole or not at all. One store
    round trip for each request that holds a call, none for others. Bad arguments are a `ConfigurationError`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        tools: Mapping[str, Limit] | None = None,
        global_limit: Limit | None = "MCP_GLOBAL",
        limiter: Limiter | None = None,
        caller: Caller | None = None,
        max_body: int = MAX_BODY,
        error_code: int = ERROR_CODE,
        exempt: Iterable[str] = DEFAULT_EXEMPT,
        any_content_type: bool = False,
    ) -> None:
        if type(max_body) is not int or max_body < 1:
            raise ConfigurationError(f"max_body {max_body!r}: use a whole number of bytes, 1 or more")
        if caller is not None and (not callable(caller) or iscoroutinefunction(caller)):
            raise ConfigurationError(f"caller {caller!r} is not a plain function of the scope")
        self.app = app
        self._limits = Limits(tools, global_limit, exempt)
        self._limiter = limiter
        self._caller = caller
        self._max_body = max_body
        self._error_code = valid_error_code(error_code)
        self._any_content_type = any_content_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope_token = mcp_scope.set(scope)
        caller_token = current_caller.set(self._caller)
        try:
            if may_hold_a_call(scope, any_content_type=self._any_content_type):
                await self._limited(scope, receive, send)
            else:
                await self.app(scope, receive, send)
        finally:
            current_caller.reset(caller_token)
            mcp_scope.reset(scope_token)

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            raw = await read_body(scope, receive, self._max_body)
            body = parse_body(raw or b"")
            costs = self._limits.costs(body.calls)
        except RefusalError as refusal:
            await refuse(send, refusal)
        else:
            await self._checked(body, costs, scope, replayed(raw, receive), send)

    async def _checked(self, body: RpcBody, costs: Sequence[Cost], scope: Scope, receive: Receive, send: Send) -> None:
        limiter = self._limiter or get_limiter()
        decision = await self._decide(limiter, costs, scope)
        style = limiter.settings.headers
        if decision is None or decision.allowed:
            headers = () if decision is None else raw_headers(decision, style)
            await self.app(scope, receive, with_headers(send, headers))
        else:
            body_of_denial = denial_body(body, denial_error(decision, self._error_code))
            await answer(send, 429, body_of_denial, decision.headers(style))

    async def _decide(self, limiter: Limiter, costs: Sequence[Cost], scope: Scope) -> Decision | None:
        """The decision on everything in a body, None if nothing is counted. At most one round trip."""
        if not costs:
            return None
        identity = identify(scope, limiter.settings, self._caller)
        if len(costs) == 1:
            rule, caller, group, units, *_ = _call(costs[0], identity)
            decision = await limiter.acheck(rule, caller, group=group, cost=units, protocol="mcp")
        else:
            decision = await limiter.acheck_many([_call(cost, identity) for cost in costs], protocol="mcp")
        return decision if decision.counted else None


def _call(cost: Cost, identity: Identity) -> Call:
    if cost.kind is not None:
        identity = identity.having(**cost.kind.attributes())
    return Call(cost.budget.rule, identity, cost.budget.group, cost.units)
