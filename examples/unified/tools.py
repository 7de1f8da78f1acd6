"""MCP: three tools. The wrapper limits each of them, and all of them together by MCP_GLOBAL."""

import assistant
from mcp.server import MCPServer

from ratelimit import RateLimits
from ratelimit_mcp import MCPRateLimit

server = MCPServer("unified", log_level="WARNING")


@server.tool()
def ask(question: str) -> str:
    """Answer a question."""
    return assistant.answer(question)


@server.tool()
def extract(text: str) -> list[str]:
    """Find the words of a text."""
    return assistant.extract(text)


@server.tool()
def analyse(text: str) -> dict[str, int]:
    """Measure a text."""
    return assistant.analyse(text)


mcp_app = MCPRateLimit(
    server.streamable_http_app(stateless_http=True),
    tools={"ask": RateLimits.AI_QUERY, "extract": RateLimits.AI_EXTRACT, "analyse": RateLimits.AI_ANALYSIS},
)
