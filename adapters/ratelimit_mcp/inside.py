"""Limits inside a server, whatever carries its calls: HTTP, standard input and output, memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypedDict

from ratelimit import Decision, Identity, Limiter, get_limiter
from ratelimit_mcp.answer import ERROR_CODE, valid_error_code
from ratelimit_mcp.caller import Caller, current_caller, mcp_identity, valid_caller
from ratelimit_mcp.calls import RpcCall
from ratelimit_mcp.context import current_scope, mcp_scope
from ratelimit_mcp.limit import LimitLike
from ratelimit_mcp.limits import Limits
from ratelimit_mcp.listing import Listings
from ratelimit_mcp.refusal import RefusalError
from ratelimit_mcp.spending import Spending

_NOBODY = Identity()


class ServerOptions(TypedDict, total=False):
    """What `MCPRateLimit` takes too, with the same meaning and the same defaults."""

    tools: Mapping[str, LimitLike] | None
    resources: Mapping[str, LimitLike] | None
    prompts: Mapping[str, LimitLike] | None
    methods: Mapping[str, LimitLike] | None
    global_limit: LimitLike | None
    limiter: Limiter | None
    caller: Caller | None
    error_code: int
    exempt: Iterable[str]


class ServerLimits:
    """What the middleware of the SDK and that of FastMCP have in common."""

    def __init__(
        self,
        *,
        limiter: Limiter | None = None,
        caller: Caller | None = None,
        error_code: int = ERROR_CODE,
        **limits: Any,
    ) -> None:
        self._limits = Limits(**limits)
        self._listings = Listings(self._limits)
        self._limiter = limiter
        self._caller = valid_caller(caller)
        self._error_code = valid_error_code(error_code)

    async def run(self, call: RpcCall, ctx: Any, proceed: Callable[[], Awaitable[Any]]) -> Any:
        """What `proceed` gives if `call` is within its limits; one store round trip, none for a call that does not count.

        `ctx` is the SDK's context of the call, None where the server is FastMCP. Raises `MCPRateLimitExceeded` for a
        denied call, and `MCPError` for one that cannot be counted.
        """
        with _seen(ctx, self._caller):
            limiter = self._limiter or get_limiter()
            try:
                costs = self._limits.costs([call])
            except RefusalError as refusal:
                raise _mcp_error(refusal) from None
            identity = mcp_identity(ctx, settings=limiter.settings) if costs else _NOBODY
            spending = Spending(limiter, costs, identity)
            decision = await spending.decide()
            if decision is not None and not decision.allowed:
                raise self._denial(decision, call)
            with spending.done(), _within():
                result = await proceed()
            if self._listings.awaits(call.method):
                self._listings.heard(call.method, result)
            return result

    def _denial(self, decision: Decision, call: RpcCall) -> Exception:
        from ratelimit_mcp.errors import MCPRateLimitExceeded, exceeded

        # FastMCP shows what a mounted server raises as the failure of its own tool; that it takes for a failure.
        told = exceeded if _nested.get() and call.method == "tools/call" else MCPRateLimitExceeded
        return told(decision, self._error_code)


_nested: ContextVar[bool] = ContextVar("mcp_nested", default=False)
"""Whether a call is made by what answers another one: a mounted server, a tool that calls tools."""


@contextmanager
def _within() -> Iterator[None]:
    token = _nested.set(True)
    try:
        yield
    finally:
        _nested.reset(token)


@contextmanager
def _seen(ctx: Any, caller: Caller | None) -> Iterator[None]:
    """Within it, the server's tools see the request and the caller as the middleware does."""
    scope_token = mcp_scope.set(current_scope(ctx))
    caller_token = current_caller.set(caller or current_caller.get())
    try:
        yield
    finally:
        current_caller.reset(caller_token)
        mcp_scope.reset(scope_token)


def _mcp_error(refusal: RefusalError) -> Exception:
    from mcp.shared.exceptions import MCPError

    return MCPError(refusal.code, str(refusal))
