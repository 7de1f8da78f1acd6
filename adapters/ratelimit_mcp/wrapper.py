"""The ASGI wrapper: a global cap and limits by name in front of any MCP application."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ratelimit import ConfigurationError, Decision, Identity, Limiter, get_limiter
from ratelimit.asgi import ASGIApp, Receive, Scope, Send, route_path, with_headers
from ratelimit.headers import raw_headers
from ratelimit.paths import PathRule, PathRules
from ratelimit_mcp.answer import ERROR_CODE, denial_answer, refuse, send_sized, valid_error_code
from ratelimit_mcp.body import may_hold_a_call, read_body, replayed
from ratelimit_mcp.caller import Caller, current_caller, identify, valid_caller
from ratelimit_mcp.calls import RpcBody, RpcCall, parse_body
from ratelimit_mcp.context import mcp_scope
from ratelimit_mcp.limit import LimitLike
from ratelimit_mcp.limits import DEFAULT_EXEMPT, Cost, Limits
from ratelimit_mcp.listing import Listings
from ratelimit_mcp.refusal import RefusalError
from ratelimit_mcp.routing import routed_call
from ratelimit_mcp.spending import Spending

MAX_BODY = 1_000_000
"""Bytes of a request's body that are held in memory to look at."""


class MCPRateLimit:
    """An MCP application that answers 429 when a call is over the global cap or over a limit of its own.

    `app` is any MCP ASGI application. `tools`, `prompts` and `resources` map names or patterns to a category (whose budget
    it then shares), to a rate (a budget of its own), to a `Rule` or `Policy`, or to a `Limit`, which can have a cost;
    `methods` does so for methods. `global_limit`, None for no cap, holds for every call. `limiter` defaults to the
    process-wide one. `caller` tells who calls from the ASGI scope. `max_body` is in bytes; larger ones are answered 413.
    `error_code` is the JSON-RPC code of a denial. `exempt` are methods that do not count, besides those a client connects
    with. `any_content_type` is for an application that runs calls whatever their Content-Type is; `paths`, of those it
    serves, are the ones with calls, if not all; `trust_headers` is for one that refuses headers which differ from the body.

    All limits of a request hold together: if one denies, none is spent. A batch runs whole or not at all. One store
    round trip for each request that holds a call, none for others. Bad arguments are a `ConfigurationError`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        tools: Mapping[str, LimitLike] | None = None,
        resources: Mapping[str, LimitLike] | None = None,
        prompts: Mapping[str, LimitLike] | None = None,
        methods: Mapping[str, LimitLike] | None = None,
        global_limit: LimitLike | None = "MCP_GLOBAL",
        limiter: Limiter | None = None,
        caller: Caller | None = None,
        max_body: int = MAX_BODY,
        error_code: int = ERROR_CODE,
        exempt: Iterable[str] = DEFAULT_EXEMPT,
        any_content_type: bool = False,
        paths: str | Iterable[str] | None = None,
        trust_headers: bool = False,
    ) -> None:
        if type(max_body) is not int or max_body < 1:
            raise ConfigurationError(f"max_body {max_body!r}: use a whole number of bytes, 1 or more")
        if type(trust_headers) is not bool:
            raise ConfigurationError(
                f"trust_headers {trust_headers!r}: True only for an application that compares them"
            )
        self.app = app
        self._limits = Limits(tools, global_limit, exempt, resources=resources, prompts=prompts, methods=methods)
        self._listings = Listings(self._limits)
        self._limiter = limiter
        self._caller = valid_caller(caller)
        self._max_body = max_body
        self._error_code = valid_error_code(error_code)
        self._any_content_type = any_content_type
        self._paths = None if paths is None else _prefixes(paths)
        self._trust_headers = trust_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope_token = mcp_scope.set(scope)
        caller_token = current_caller.set(self._caller)
        try:
            if self._may_hold_a_call(scope):
                await self._limited(scope, receive, send)
            else:
                await self.app(scope, receive, send)
        finally:
            current_caller.reset(caller_token)
            mcp_scope.reset(scope_token)

    def _may_hold_a_call(self, scope: Scope) -> bool:
        if self._paths is not None and self._paths.find(route_path(scope), "") is None:
            return False
        return may_hold_a_call(scope, any_content_type=self._any_content_type)

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = routed_call(scope) if self._trust_headers else None
        if call is not None and not self._limits.needs_arguments(call):
            await self._by_headers(call, scope, receive, send)
            return
        try:
            raw = await read_body(scope, receive, self._max_body)
            body = parse_body(raw or b"")
            costs = self._limits.costs(body.calls)
        except RefusalError as refusal:
            await refuse(send, refusal)
            return
        receive = replayed(raw, receive)
        spending = self._spending(costs, scope)
        decision = await spending.decide()
        if decision is None or decision.allowed:
            method = body.calls[0].method if len(body.calls) == 1 else ""
            await self._allowed(spending, decision, method, scope, receive, send)
        else:
            await self._denied(spending, decision, body, send)

    async def _by_headers(self, call: RpcCall, scope: Scope, receive: Receive, send: Send) -> None:
        """`_limited` for a call that is known without its body, which is read only for the id that a denial names."""
        spending = self._spending(self._limits.costs([call]), scope)
        decision = await spending.decide()
        if decision is None or decision.allowed:
            await self._allowed(spending, decision, call.method, scope, receive, send)
            return
        try:
            body = parse_body(await read_body(scope, receive, self._max_body) or b"")
        except RefusalError:
            body = RpcBody()
        await self._denied(spending, decision, body, send)

    def _spending(self, costs: Sequence[Cost], scope: Scope) -> Spending:
        limiter = self._limiter or get_limiter()
        return Spending(limiter, costs, identify(scope, limiter.settings, self._caller) if costs else _NOBODY)

    async def _allowed(
        self, spending: Spending, decision: Decision | None, method: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if decision is not None:
            send = with_headers(send, raw_headers(decision, spending.limiter.settings.headers))
        if self._listings.awaits(method):
            send = self._listings.listening(method, send)
        with spending.done():
            await self.app(scope, receive, send)

    async def _denied(self, spending: Spending, decision: Decision, body: RpcBody, send: Send) -> None:
        await send_sized(send, denial_answer(decision, body, self._error_code, spending.limiter.settings))


_NOBODY = Identity()


def _prefixes(paths: str | Iterable[str]) -> PathRules:
    """What finds a path below one of `paths`, however it is spelled."""
    prefixes = [paths] if isinstance(paths, str) else list(paths)
    if not prefixes:
        raise ConfigurationError("paths: name at least one; leave it out to look at all requests")
    return PathRules([PathRule(prefix, "MCP_GLOBAL") for prefix in dict.fromkeys(prefixes)])
