"""A denial as an exception that an MCP server turns into an error its client understands. Needs `mcp`."""

from __future__ import annotations

import logging
from functools import cache

from mcp.shared.exceptions import MCPError

from ratelimit import Decision, RateLimitExceeded
from ratelimit_mcp.answer import ERROR_CODE, denial_error
from ratelimit_mcp.context import within_fastmcp


class MCPRateLimitExceeded(RateLimitExceeded, MCPError):
    """Raised in a tool: the SDK's server answers a JSON-RPC error with code, message and the wait in `data`.

    FastMCP never passes a tool's error on as one; there the result is an error (`isError`) with the message.
    """

    def __init__(self, decision: Decision, code: int = ERROR_CODE) -> None:
        error = denial_error(decision, code)
        MCPError.__init__(self, error["code"], error["message"], error["data"])
        self.decision = decision

    def __reduce__(self) -> tuple[type[MCPRateLimitExceeded], tuple[object, ...]]:
        return type(self), (self.decision, self.error.code)


def exceeded(decision: Decision, code: int) -> MCPRateLimitExceeded:
    """The exception to raise under the server that runs the current tool."""
    return (_fastmcp_error() if within_fastmcp() else MCPRateLimitExceeded)(decision, code)


@cache
def _fastmcp_error() -> type[MCPRateLimitExceeded]:
    """`MCPRateLimitExceeded` that FastMCP takes for a `ToolError`: shown even where details are masked, no traceback."""
    from fastmcp.exceptions import ToolError

    class FastMCPRateLimitExceeded(MCPRateLimitExceeded, ToolError):
        log_level = logging.INFO  # the engine has logged the denial

    return FastMCPRateLimitExceeded
