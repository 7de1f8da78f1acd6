"""Servers of the SDK and of FastMCP that hold a middleware, and how their clients reach them."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import fastmcp
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.mcpserver import MCPServer

from ratelimit_mcp import FastMCPMiddleware, MCPMiddleware, mcp_identity
from tests.mcp.served import connected, serve

KINDS = ["sdk", "fastmcp"]
CARRIERS = ["memory", "memory-legacy", "http", "http-legacy"]


def make_server(kind: str, **options: Any) -> Any:
    """A server with tools, a prompt and two resources, limited by a middleware with these options."""
    if kind == "sdk":
        server: Any = MCPServer("sdk", middleware=[MCPMiddleware(**options)])
    else:
        server = fastmcp.FastMCP("fastmcp", middleware=[FastMCPMiddleware(**options)])
    return filled(server)


def filled(server: Any) -> Any:
    """`server` with what the tests ask for."""
    for name in ("search", "fetch", "other"):
        server.tool(name)(who)
    server.prompt("write")(write)
    server.resource("docs://readme")(write)
    server.resource("docs://{page}/text")(text_of)
    return server


async def who(words: str = "") -> str:
    """Who calls, as the tool sees it."""
    return mcp_identity().key()


def write() -> str:
    return "Write!"


def text_of(page: str) -> str:
    return page


def http_app(server: Any) -> Any:
    """The server's ASGI application."""
    return server.streamable_http_app() if isinstance(server, MCPServer) else server.http_app()


@asynccontextmanager
async def client_of(server: Any, carrier: str, **headers: str) -> AsyncIterator[Client]:
    """The SDK's client of a server, in memory or over HTTP, in the newest protocol or the older one."""
    mode = "legacy" if carrier.endswith("legacy") else "auto"
    if carrier.startswith("memory"):
        low_level = server if isinstance(server, MCPServer) else server._mcp_server
        async with Client(low_level, mode=mode) as client:
            yield client
    else:
        async with serve(http_app(server)) as url, connected(url, mode, **headers) as (client, _):
            yield client


def script(kind: str) -> StdioServerParameters:
    """How to start the limited server of a kind on its standard input and output."""
    path = str(Path(__file__).with_name("stdio_limited.py"))
    return StdioServerParameters(
        command=sys.executable, args=[path, kind], env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    )
