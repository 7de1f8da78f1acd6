"""Rate limits for MCP servers: an ASGI wrapper with a limit per tool, and checks for use inside tools.

    app = MCPRateLimit(server.streamable_http_app(), tools={"search": "AI_QUERY", "export": "5/h"})

Importing it needs neither `mcp` nor `fastmcp`; `MCPRateLimitExceeded` (and a denial by `mcp_ratelimit`) needs
`mcp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ratelimit_mcp.caller import mcp_identity, oauth_subject
from ratelimit_mcp.context import mcp_scope
from ratelimit_mcp.handler import check_mcp_rate_limit, check_mcp_rate_limit_sync, mcp_ratelimit
from ratelimit_mcp.wrapper import MCPRateLimit

if TYPE_CHECKING:
    from ratelimit_mcp.errors import MCPRateLimitExceeded

__all__ = [
    "MCPRateLimit",
    "MCPRateLimitExceeded",
    "check_mcp_rate_limit",
    "check_mcp_rate_limit_sync",
    "mcp_identity",
    "mcp_ratelimit",
    "mcp_scope",
    "oauth_subject",
]


def __getattr__(name: str) -> Any:
    if name != "MCPRateLimitExceeded":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ratelimit_mcp.errors import MCPRateLimitExceeded

    return MCPRateLimitExceeded
