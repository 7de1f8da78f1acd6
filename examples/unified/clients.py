"""A client for each protocol: `ask(category)` makes one call and says how long to wait, None if it was let through.

An answer that is neither what was asked for nor a denial in the protocol's own form is an error. No client goes through
a proxy that the environment names: the server is on this machine.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx
import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

Ask = Callable[[str], Awaitable[int | None]]
Headers = Mapping[str, str]

PATHS = {"READ_HEAVY": "/report", "AI_QUERY": "/ask?question=why"}
OPERATIONS = {
    "AI_QUERY": 'query { ask(question: "why") }',
    "WRITE_MEDIUM": 'mutation { renameDocument(name: "new") { name } }',
}
MESSAGES = {"AI_QUERY": {"ask": "why"}, "WS_HEARTBEAT": {"ping": 1}}
TOOLS = {
    "AI_QUERY": ("ask", {"question": "why"}),
    "AI_EXTRACT": ("extract", {"text": "to be or not to be"}),
    "AI_ANALYSIS": ("analyse", {"text": "to be or not to be"}),
}


class UnexpectedAnswerError(Exception):
    """The server answered neither as asked nor with a denial."""


def wait_of(response: httpx.Response) -> int | None:
    """The wait that an HTTP response tells, None for 200."""
    if response.status_code == 429:
        return int(response.headers["Retry-After"])
    if response.status_code != 200:
        raise UnexpectedAnswerError(f"{response.status_code} {response.text}")
    return None


@asynccontextmanager
async def http(url: str, headers: Headers) -> AsyncIterator[Ask]:
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:

        async def ask(category: str) -> int | None:
            return wait_of(await client.get(PATHS[category]))

        yield ask


@asynccontextmanager
async def graphql(url: str, headers: Headers) -> AsyncIterator[Ask]:
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:

        async def ask(category: str) -> int | None:
            result = (await client.post("/graphql", json={"query": OPERATIONS[category]})).json()
            if "errors" not in result:
                return None
            extensions = result["errors"][0].get("extensions", {})
            if extensions.get("code") != "RATE_LIMITED":
                raise UnexpectedAnswerError(result)
            return int(extensions["retry_after"])

        yield ask


@asynccontextmanager
async def websocket(url: str, headers: Headers) -> AsyncIterator[Ask]:
    address = url.replace("http", "ws", 1) + "/ws"
    async with connect(address, additional_headers=headers, proxy=None) as socket:

        async def ask(category: str) -> int | None:
            await socket.send(json.dumps(MESSAGES[category]))
            reply = json.loads(await socket.recv())
            if reply["type"] in ("ANSWER", "PONG"):
                return None
            if reply["type"] != "RATE_LIMITED":
                raise UnexpectedAnswerError(reply)
            return int(reply["retry_after"])

        yield ask


@asynccontextmanager
async def handshake(url: str, headers: Headers) -> AsyncIterator[Ask]:
    async def ask(category: str) -> int | None:
        try:
            async with websocket(url, headers):
                return None
        except InvalidStatus as refused:
            if refused.response.status_code != 429:
                raise
            return int(refused.response.headers["Retry-After"])

    yield ask


@asynccontextmanager
async def mcp(url: str, headers: Headers) -> AsyncIterator[Ask]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http_client,
        Client(streamable_http_client(url + "/mcp", http_client=http_client)) as client,
    ):

        async def ask(category: str) -> int | None:
            name, arguments = TOOLS[category]
            try:
                result = await client.call_tool(name, arguments)
            except MCPError as denial:
                return int(denial.error.data["retry_after"])
            if result.is_error:
                raise UnexpectedAnswerError(result)
            return None

        yield ask


CLIENTS: dict[str, Callable[[str, Headers], AbstractAsyncContextManager[Ask]]] = {
    "HTTP": http,
    "GraphQL": graphql,
    "WebSocket": websocket,
    "Handshake": handshake,
    "MCP": mcp,
}
