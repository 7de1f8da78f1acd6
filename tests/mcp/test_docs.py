"""The answer that the documentation shows is one that was given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("mcp")
pytest.importorskip("fastmcp")

import httpx2

from ratelimit import Limiter
from ratelimit_mcp import MCPRateLimit
from tests.mcp.asgi import tool_call
from tests.mcp.served import sdk_app, serve

PAGE = Path(__file__).parents[2] / "docs" / "mcp.md"
OURS = ("content-type", "content-length", "cache-control", "retry-after")


async def test_the_captured_answer_is_what_comes_over_the_wire(limiter: Limiter) -> None:
    captured = re.search(r"<!-- captured -->\n```http\n(.+?)\n```", PAGE.read_text(), re.DOTALL)
    assert captured is not None
    async with serve(MCPRateLimit(sdk_app(), tools={"export": "2/h"})) as url, httpx2.AsyncClient() as http:
        for number in (1, 2, 3):
            answer = await http.post(url, json=tool_call("export", number))
    lines = [f"HTTP/1.1 {answer.status_code} {answer.reason_phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items() if name in OURS]
    assert "\n".join([*lines, "", answer.text]) == captured[1]
