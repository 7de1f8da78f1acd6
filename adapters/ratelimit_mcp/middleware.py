"""Middleware for servers of the MCP SDK: limits over stdio and in memory, as over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Unpack

from ratelimit import RateLimitExceeded
from ratelimit_mcp.answer import denial_data, denial_text
from ratelimit_mcp.calls import call_of
from ratelimit_mcp.inside import ServerLimits, ServerOptions


class MCPMiddleware:
    """Limits within a server of the SDK: `MCPServer("library", middleware=[MCPMiddleware(tools={"search": "AI_QUERY"})])`.

    `tools`, `resources`, `prompts`, `methods`, `global_limit`, `limiter`, `error_code` and `exempt` are as in
    `MCPRateLimit`; so is `caller`, which is asked where there is an HTTP request. A denied call is a JSON-RPC error; with
    `as_result` a denied tool gives a result with `isError`, which the model reads. What `MCPRateLimit` around the same
    server has counted is not counted again. Bad arguments are a `ConfigurationError`.
    """

    def __init__(self, *, as_result: bool = False, **options: Unpack[ServerOptions]) -> None:
        self._limits = ServerLimits(**options)
        self._as_result = as_result

    async def __call__(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        if ctx.request_id is None:  # a notification: nothing runs for it, and no answer could be given
            return await call_next(ctx)
        call = call_of(ctx.method, ctx.params, ctx.request_id)
        try:
            return await self._limits.run(call, ctx, lambda: call_next(ctx))
        except RateLimitExceeded as denied:
            if not self._as_result or call.method != "tools/call":
                raise
            # A result that was not made by a handler goes out as it is: the newest protocol wants a type, the older ones
            # pass over it.
            return {
                "content": [{"type": "text", "text": denial_text(denied.decision)}],
                "isError": True,
                "resultType": "complete",
                "_meta": {"ratelimit": denial_data(denied.decision)},
            }
