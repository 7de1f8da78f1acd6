"""A server that talks over its standard input and output; a test starts it."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

from ratelimit_mcp import mcp_identity, mcp_ratelimit

server = MCPServer("stdio")


@server.tool()
@mcp_ratelimit("2/h", tool="search")
async def search() -> str:
    return mcp_identity().key()


server.run()
