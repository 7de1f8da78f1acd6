"""The answers that the documentation shows are ones that were given."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")
pytest.importorskip("fastmcp")

import httpx2
from mcp.server.mcpserver import MCPServer

from ratelimit import Limiter
from ratelimit_mcp import MCPMiddleware, MCPRateLimit
from tests.mcp.asgi import tool_call
from tests.mcp.served import modern_call, sdk_app, serve

PAGE = Path(__file__).parents[2] / "docs" / "mcp.md"
OURS = ("content-type", "content-length", "cache-control", "retry-after", "access-control-expose-headers")
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def captured(name: str) -> str:
    found = re.search(rf"<!-- captured: {name} -->\n```\w+\n(.+?)\n```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def shown(answer: httpx2.Response, *headers: str) -> str:
    # Pythons before 3.13 know 413 by its older name.
    phrase = answer.reason_phrase.replace("Request Entity Too Large", "Content Too Large")
    lines = [f"HTTP/1.1 {answer.status_code} {phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items() if name in (headers or OURS)]
    return "\n".join([*lines, "", answer.text])


async def posted(app: Any, *requests: dict[str, Any]) -> httpx2.Response:
    """The answer to the last of these requests."""
    async with serve(app) as url, httpx2.AsyncClient() as http:
        for request in requests:
            answer = await http.post(url, **request)
    return answer


def call(request_id: int) -> dict[str, Any]:
    return {"json": tool_call("export", request_id)}


async def test_the_wrappers_answer(limiter: Limiter) -> None:
    answer = await posted(MCPRateLimit(sdk_app(), tools={"export": "2/h"}), call(1), call(2), call(3))
    assert shown(answer) == captured("wrapper")


async def test_the_wrappers_answer_to_a_batch(limiter: Limiter) -> None:
    batch = {"json": [tool_call("export", 1), tool_call("export", 2)]}
    assert shown(await posted(MCPRateLimit(sdk_app(), tools={"export": "1/h"}), batch)) == captured("batch")


async def test_the_wrappers_answer_to_a_large_body(limiter: Limiter) -> None:
    large = {"content": b" " * 10_000_000, "headers": {"content-type": "application/json"}}
    assert shown(await posted(MCPRateLimit(sdk_app()), large)) == captured("large")


async def test_the_middlewares_answer_over_http(limiter: Limiter) -> None:
    server = MCPServer("library", middleware=[MCPMiddleware(tools={"export": "2/h"})])
    request = modern_call("export")
    request["json"]["id"] = 3
    answer = await posted(server.streamable_http_app(), request, request, request)
    assert shown(answer, "content-type", "retry-after") == captured("middleware")


@pytest.mark.parametrize("name", ["stdio", "result"])
async def test_the_middlewares_answer_over_stdio(name: str) -> None:
    script = str(Path(__file__).with_name("stdio_captured.py"))
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        script,
        *(["as_result"] if name == "result" else []),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert server.stdin is not None
    assert server.stdout is not None
    lines = []
    for request in (
        {"id": 0, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        *({"id": n, "method": "tools/call", "params": {"name": "export"}} for n in (1, 2, 3)),
    ):
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **request}).encode() + b"\n")
        if "id" in request:
            lines.append((await server.stdout.readline()).decode().rstrip())
    server.stdin.close()
    await server.wait()
    assert lines[-1] == captured(name)
