"""MCP servers of the SDK and of FastMCP on a real socket, and what their clients made of a call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import fastmcp
import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer

from ratelimit_mcp import mcp_scope
from tests.webserver import WebServer, address, listener

App = Callable[..., Awaitable[None]]
MODES = ["auto", "legacy", "2026-07-28"]
"""How a client connects: the newest protocol by discovery, the older handshake, the newest without asking."""


def note() -> str:
    """What the current request's header `x-note` says, as a tool sees it."""
    scope = mcp_scope.get()
    return "no scope" if scope is None else dict(scope["headers"]).get(b"x-note", b"").decode()


def sdk_app(**options: Any) -> App:
    """A server of the SDK with three tools."""
    server = MCPServer("sdk")
    for name in ("search", "fetch", "other"):
        server.tool(name)(note)
    return server.streamable_http_app(**options)


def fastmcp_app(**options: Any) -> App:
    """The same server in FastMCP."""
    server = fastmcp.FastMCP("fastmcp")
    for name in ("search", "fetch", "other"):
        server.tool(note, name=name)
    return server.http_app(**options)


APPS = {"sdk": sdk_app, "fastmcp": fastmcp_app}


@asynccontextmanager
async def serve(app: App) -> AsyncIterator[str]:
    """The address of `app`'s MCP endpoint, served by Uvicorn until the block ends."""
    with listener() as listening:
        server = WebServer(app, log_level="warning", ws="none")
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await server.ready.wait()
        try:
            yield f"http://{address(listening)}/mcp"
        finally:
            server.end()
            await serving


class Journal:
    """An ASGI application around another: the method and the status of every POST that went through it."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.entries: list[tuple[str, int]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = bytearray()

        async def noted_receive() -> Any:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        async def noted_send(message: Any) -> None:
            if message["type"] == "http.response.start" and scope["method"] == "POST":
                self.entries.append((json.loads(body)["method"], int(message["status"])))
            await send(message)

        await self.app(scope, noted_receive, noted_send)

    def statuses(self, method: str) -> set[int]:
        return {status for noted, status in self.entries if noted == method}


@asynccontextmanager
async def connected(url: str, mode: str = "auto", **headers: str) -> AsyncIterator[tuple[Client, httpx2.AsyncClient]]:
    """The SDK's client and, to change headers on the way, the HTTP client below it."""
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client, http


async def outcome(client: Any, tool: str = "search", **arguments: Any) -> str | MCPError:
    """The text a call gives, or the error its client raises."""
    try:
        result = await client.call_tool(tool, arguments)
    except MCPError as error:
        return error
    (content,) = result.content
    text: str = content.text
    return text


async def outcomes(client: Any, times: int, tool: str = "search") -> list[str]:
    """`answered` or `denied` for so many calls."""
    found = [await outcome(client, tool) for _ in range(times)]
    return ["denied" if isinstance(one, MCPError) and one.code == 429 else "answered" for one in found]


def modern_call(tool: str = "search", arguments: Any = None, **headers: str) -> dict[str, Any]:
    """A raw call as a client of 2026-07-28 sends it, with other headers on demand."""
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": tool, "arguments": {} if arguments is None else arguments, "_meta": meta}
    sent = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": tool,
        **headers,
    }
    return {"json": {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}, "headers": sent}
