"""Middleware for servers of FastMCP: limits over stdio and in memory, as over HTTP. Needs `fastmcp`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import ToolResult
from mcp.types import TextContent

from ratelimit import RateLimitExceeded
from ratelimit_mcp.answer import denial_data, denial_text
from ratelimit_mcp.calls import RpcCall, call_of
from ratelimit_mcp.inside import ServerLimits, ServerOptions


class FastMCPMiddleware(Middleware):
    """Limits within a server of FastMCP: `server.add_middleware(FastMCPMiddleware(tools={"search": "AI_QUERY"}))`.

    Arguments and answers as in `MCPMiddleware`. Names are those that the client called: with another server mounted or
    proxied, the name that it has in the server which holds the middleware.
    """

    def __init__(self, *, as_result: bool = False, **options: Unpack[ServerOptions]) -> None:
        self._limits = ServerLimits(**options)
        self._as_result = as_result

    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Every request, of a method that FastMCP knows or not."""
        call = _call(context)
        try:
            return await self._limits.run(call, None, lambda: call_next(context))
        except RateLimitExceeded as denied:
            # A message that is still a mapping was not valid: FastMCP has no tool's result to give for it.
            if not self._as_result or call.method != "tools/call" or isinstance(context.message, Mapping):
                raise
            text = TextContent(type="text", text=denial_text(denied.decision))
            return ToolResult([text], meta={"ratelimit": denial_data(denied.decision)}, is_error=True)


def _call(context: MiddlewareContext[Any]) -> RpcCall:
    message = context.message
    if not isinstance(message, Mapping):
        message = {name: getattr(message, name, None) for name in ("name", "uri", "arguments")}
    return call_of(context.method or "", message)
