"""Rate limits for MCP servers: an ASGI wrapper and middleware with limits by name, and checks for use inside tools.

    app = MCPRateLimit(server.streamable_http_app(), tools={"search": "AI_QUERY", "export": Limit("5/h", cost=3)})

Importing it needs neither `mcp` nor `fastmcp`; `MCPRateLimitExceeded` (and a denial inside a server) needs `mcp`,
`FastMCPMiddleware` needs `fastmcp`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from ratelimit_mcp.caller import mcp_identity, oauth_subject
from ratelimit_mcp.context import mcp_scope
from ratelimit_mcp.handler import check_mcp_rate_limit, check_mcp_rate_limit_sync, mcp_ratelimit
from ratelimit_mcp.limit import Limit
from ratelimit_mcp.listing import check_mcp_names
from ratelimit_mcp.middleware import MCPMiddleware
from ratelimit_mcp.wrapper import MCPRateLimit

if TYPE_CHECKING:
    from ratelimit_mcp.errors import MCPRateLimitExceeded
    from ratelimit_mcp.fastmcp_middleware import FastMCPMiddleware

__all__ = [
    "FastMCPMiddleware",
    "Limit",
    "MCPMiddleware",
    "MCPRateLimit",
    "MCPRateLimitExceeded",
    "check_mcp_names",
    "check_mcp_rate_limit",
    "check_mcp_rate_limit_sync",
    "mcp_identity",
    "mcp_ratelimit",
    "mcp_scope",
    "oauth_subject",
]

_LATER: Final = {"MCPRateLimitExceeded": "errors", "FastMCPMiddleware": "fastmcp_middleware"}


def _leave_out(names: list[str]) -> None:
    """Takes from `names` what cannot be imported here, for `from ratelimit_mcp import *`."""
    for framework, name in (("mcp", "MCPRateLimitExceeded"), ("fastmcp", "FastMCPMiddleware")):
        if find_spec(framework) is None:
            names.remove(name)


_leave_out(__all__)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
