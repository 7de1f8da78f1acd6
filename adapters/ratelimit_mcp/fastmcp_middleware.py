"""Middleware for servers of FastMCP: limits over stdio and in memory, as over HTTP. Needs `fastmcp`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import ToolResult
from mcp.types import TextContent

from ratelimit import Limiter, RateLimitExceeded
from ratelimit_mcp.answer import ERROR_CODE, denial_data, denial_text
from ratelimit_mcp.caller import Caller
from ratelimit_mcp.calls import RpcCall, call_of
from ratelimit_mcp.inside import ServerLimits
from ratelimit_mcp.limit import LimitLike
from ratelimit_mcp.limits import DEFAULT_EXEMPT


class FastMCPMiddleware(Middleware):
    """Limits within a server of FastMCP: `server.add_middleware(FastMCPMiddleware(tools={"search": "AI_QUERY"}))`.

    Arguments and answers as in `MCPMiddleware`. Names are those that the client called: with another server mounted or
    proxied, the name that it has in the server which holds the middleware.
    """

    def __init__(
        self,
        *,
        tools: Mapping[str, LimitLike] | None = None,
        resources: Mapping[str, LimitLike] | None = None,
        prompts: Mapping[str, LimitLike] | None = None,
        methods: Mapping[str, LimitLike] | None = None,
        global_limit: LimitLike | None = "MCP_GLOBAL",
        limiter: Limiter | None = None,
        caller: Caller | None = None,
        error_code: int = ERROR_CODE,
        exempt: Iterable[str] = DEFAULT_EXEMPT,
        as_result: bool = False,
    ) -> None:
        self._limits = ServerLimits(
            tools=tools,
            resources=resources,
            prompts=prompts,
            methods=methods,
            global_limit=global_limit,
            limiter=limiter,
            caller=caller,
            error_code=error_code,
            exempt=exempt,
        )
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
