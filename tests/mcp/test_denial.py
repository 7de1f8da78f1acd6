"""The 429: its JSON-RPC error, its headers, and those of answers that are allowed."""

from __future__ import annotations

from typing import Any

import pytest

from ratelimit import Limiter
from ratelimit.testing import FakeClock, isolated
from ratelimit_mcp import MCPRateLimit
from tests.mcp.asgi import JSON, ToolRunner, send_request, statuses, tool_call


async def test_a_denial_is_a_jsonrpc_error_with_the_wait_and_no_cache_keeps_it(
    limiter: Limiter, fake_clock: FakeClock
) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "1/m"})
    await statuses(wrapped, 1)
    fake_clock.advance(17.75)
    response = await send_request(wrapped, tool_call(request_id=7))
    assert response.status == 429
    assert response.headers == {
        "content-type": "application/json",
        "content-length": str(len(response.body)),
        "cache-control": "no-store",
        "retry-after": "43",
        "access-control-expose-headers": "Retry-After",
    }
    assert response.json == {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {
            "code": 429,
            "message": "Limit exceeded: Max 1 request per minute. Please try again later.",
            "data": {"retry_after": 43, "retry_after_ms": 42_250, "limit": 1, "rule": "mcp:search"},
        },
    }


@pytest.mark.parametrize("request_id", ["a", "", 0, -1, 10**30, "é\ud800", None])
async def test_the_error_carries_the_requests_id(request_id: Any, limiter: Limiter) -> None:
    response = await send_request(MCPRateLimit(ToolRunner(), global_limit="0/m"), tool_call(request_id=request_id))
    assert response.json["id"] == request_id


async def test_the_code_is_a_choice(limiter: Limiter) -> None:
    response = await send_request(MCPRateLimit(ToolRunner(), global_limit="0/m", error_code=-29), tool_call())
    assert response.json["error"]["code"] == -29


@pytest.mark.parametrize(
    ("left", "seconds", "milliseconds"), [(0.6, "1", 600), (0.001, "1", 1), (1.9, "2", 1900), (59.0, "59", 59_000)]
)
async def test_waiting_as_long_as_told_is_enough(
    left: float, seconds: str, milliseconds: int, limiter: Limiter, fake_clock: FakeClock
) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "1/m"})
    fake_clock.advance(60 - left)
    await statuses(wrapped, 1)
    denied = await send_request(wrapped, tool_call())
    assert (denied.status, denied.headers["retry-after"]) == (429, seconds)
    assert denied.json["error"]["data"]["retry_after_ms"] == milliseconds
    fake_clock.advance(milliseconds / 1000)
    assert await statuses(wrapped, 1) == [200]


async def test_the_longer_of_two_waits_is_told(limiter: Limiter, fake_clock: FakeClock) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "1/h"}, global_limit="1/m")
    await statuses(wrapped, 1)
    fake_clock.advance(10)
    denied = await send_request(wrapped, tool_call())
    assert (denied.headers["retry-after"], denied.json["error"]["data"]["rule"]) == ("3590", "mcp:search")
    other = await send_request(wrapped, tool_call("other"))
    assert (other.headers["retry-after"], other.json["error"]["data"]["rule"]) == ("50", "mcp")
    fake_clock.advance(5)
    assert (await send_request(wrapped, tool_call("other"))).headers["retry-after"] == "45"


async def test_an_allowed_answer_has_no_header_of_ours_by_default(limiter: Limiter) -> None:
    allowed = await send_request(MCPRateLimit(ToolRunner()), tool_call())
    assert allowed.messages[0]["headers"] == [JSON]


async def test_ietf_headers_name_every_limit(fake_clock: FakeClock) -> None:
    with isolated(clock=fake_clock, headers="ietf"):
        fake_clock.advance(12)
        wrapped = MCPRateLimit(ToolRunner(), tools={"search": "2/m"})
        allowed = await send_request(wrapped, tool_call())
        assert allowed.messages[0]["headers"] == [
            JSON,
            (b"ratelimit-policy", b'"mcp:search";q=2;w=60, "MCP_GLOBAL";q=100;w=60'),
            (b"ratelimit", b'"mcp:search";r=1;t=48, "MCP_GLOBAL";r=99;t=48'),
        ]
        await statuses(wrapped, 1)
        denied = await send_request(wrapped, tool_call())
        assert denied.headers["ratelimit"].startswith('"mcp:search";r=0;t=48')
        assert denied.headers["retry-after"] == "48"


async def test_x_headers_give_the_strictest_limit(fake_clock: FakeClock) -> None:
    with isolated(clock=fake_clock, headers="x"):
        wrapped = MCPRateLimit(ToolRunner(), tools={"search": "2/m"})
        allowed = await send_request(wrapped, tool_call())
        assert allowed.messages[0]["headers"] == [
            JSON,
            (b"x-ratelimit-limit", b"2"),
            (b"x-ratelimit-remaining", b"1"),
            (b"x-ratelimit-reset", b"60"),
        ]
        listed = await send_request(wrapped, tool_call(method="tools/list"))
        assert listed.messages[0]["headers"] == [JSON]


async def test_a_denial_is_logged_once_with_the_protocol(limiter: Limiter, caplog: pytest.LogCaptureFixture) -> None:
    await statuses(MCPRateLimit(ToolRunner(), tools={"search": "0/m"}), 1)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    for part in ("mcp:search", "ip:203.0.113.7", "0/m", "mcp"):
        assert part in record.getMessage()
