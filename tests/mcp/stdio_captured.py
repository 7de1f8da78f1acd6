"""The server whose answers over stdio the documentation shows; with an argument, denials are results."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import MCPServer

from ratelimit import Limiter
from ratelimit.testing import FakeClock
from ratelimit_mcp import MCPMiddleware

limit = MCPMiddleware(tools={"export": "2/h"}, limiter=Limiter(clock=FakeClock()), as_result=len(sys.argv) > 1)
server = MCPServer("library", middleware=[limit])


@server.tool()
async def export() -> str:
    return "everything"


server.run()
