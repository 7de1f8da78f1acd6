"""A server of the SDK, or with `fastmcp` as its argument one of FastMCP, limited over its standard input and output."""

from __future__ import annotations

import sys

import fastmcp
from mcp.server.mcpserver import MCPServer

from ratelimit_mcp import FastMCPMiddleware, MCPMiddleware, mcp_identity

LIMITS = {"tools": {"search": "2/h"}, "resources": {"docs://*": "1/h"}, "global_limit": "5/h"}


async def search() -> str:
    return mcp_identity().key()


def readme() -> str:
    return "Read me!"


server = (
    fastmcp.FastMCP("stdio", middleware=[FastMCPMiddleware(**LIMITS)])  # type: ignore[arg-type]
    if sys.argv[1:] == ["fastmcp"]
    else MCPServer("stdio", middleware=[MCPMiddleware(**LIMITS)])  # type: ignore[arg-type]
)
server.tool("search")(search)
server.tool("other")(search)
server.resource("docs://readme")(readme)
if isinstance(server, fastmcp.FastMCP):
    server.run(show_banner=False)
else:
    server.run()
