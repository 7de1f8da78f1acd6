"""JSON-RPC batches: they run whole or not at all, and cost what their calls cost."""

from __future__ import annotations

from typing import Any

import pytest

from ratelimit import Limiter, Rate, Rule
from ratelimit.testing import FakeClock
from ratelimit_mcp import MCPRateLimit
from tests.mcp.asgi import ToolRunner, send_request, statuses, tool_call

CALLER = "ip:203.0.113.7"


def batch(*counts: tuple[str, int]) -> list[dict[str, Any]]:
    names = [name for name, count in counts for _ in range(count)]
    return [tool_call(name, request_id) for request_id, name in enumerate(names)]


async def test_a_batch_over_its_tools_limit_runs_nothing_and_spends_nothing(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"search": "5/20s"})
    response = await send_request(wrapped, batch(("search", 20)))
    assert response.status == 429
    assert app.ran == []
    assert limiter.peek(Rate.parse("5/20s"), CALLER, group="mcp:search").remaining == 5
    assert limiter.peek("MCP_GLOBAL", CALLER).remaining == 100
    assert await statuses(wrapped, 1, batch(("search", 5))) == [200]
    assert app.ran == ["search"] * 5
    assert await statuses(wrapped, 1) == [429]


async def test_every_request_of_a_refused_batch_gets_the_error_under_its_own_id(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "2/m"})
    calls = [*batch(("search", 3)), {"jsonrpc": "2.0", "method": "notifications/initialized"}, tool_call("x", "text")]
    answers = (await send_request(wrapped, calls)).json
    assert [answer["id"] for answer in answers] == [0, 1, 2, "text"]
    assert {answer["jsonrpc"] for answer in answers} == {"2.0"}
    assert [answer["error"]["code"] for answer in answers] == [429] * 4


async def test_a_batch_that_can_never_fit_gives_no_wait(limiter: Limiter, fake_clock: FakeClock) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "5/20s"})
    response = await send_request(wrapped, batch(("search", 6)))
    assert "retry-after" not in response.headers
    data = response.json[0]["error"]["data"]
    assert data == {"retry_after": None, "retry_after_ms": None, "limit": 5, "rule": "mcp:search"}
    assert await statuses(wrapped, 1, batch(("search", 4))) == [200]
    fake_clock.advance(5)
    waiting = await send_request(wrapped, batch(("search", 2)))
    assert (waiting.headers["retry-after"], waiting.json[0]["error"]["data"]["retry_after_ms"]) == ("15", 15_000)


async def test_a_mixed_batch_is_charged_to_every_tool_in_it(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"search": "2/m", "fetch": "5/m"})
    assert await statuses(wrapped, 1, batch(("search", 3), ("fetch", 3))) == [429]
    assert await statuses(wrapped, 1, batch(("search", 2), ("fetch", 3))) == [200]
    assert sorted(app.ran) == ["fetch"] * 3 + ["search"] * 2
    assert await statuses(wrapped, 1, batch(("fetch", 3))) == [429]
    assert await statuses(wrapped, 1, batch(("fetch", 2))) == [200]


async def test_tools_of_one_category_add_up(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"ask": "AI_QUERY", "summarise": "AI_QUERY"})
    assert await statuses(wrapped, 1, batch(("ask", 11), ("summarise", 10))) == [429]
    assert await statuses(wrapped, 1, batch(("ask", 10), ("summarise", 10))) == [200]
    assert await statuses(wrapped, 1, tool_call("summarise")) == [429]


async def test_the_cap_counts_every_call_of_a_batch(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), global_limit="10/m")
    assert await statuses(wrapped, 3, batch(("search", 6))) == [200, 429, 429]
    assert await statuses(wrapped, 1, batch(("search", 4))) == [200]
    assert len(app.ran) == 10


async def test_thousands_of_calls_in_one_batch_run_none(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"search": "5/m"})
    response = await send_request(wrapped, batch(("search", 5000)))
    assert (response.status, app.ran) == (429, [])
    assert response.json["id"] is None
    assert len((await send_request(wrapped, batch(("search", 1000)))).json) == 1000


async def test_exempt_methods_in_a_batch_spend_nothing(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "2/m"}, global_limit="2/m")
    around = [tool_call(method=method) for method in ("initialize", "ping", "tools/list", "notifications/x")]
    assert await statuses(wrapped, 1, [*around, *batch(("search", 2)), *around]) == [200]
    assert await statuses(wrapped, 3, around) == [200] * 3
    assert await statuses(wrapped, 1, [*around, tool_call()]) == [429]


async def test_a_refused_batch_of_notifications_is_answered_under_null(limiter: Limiter) -> None:
    silent = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "search"}}
    response = await send_request(MCPRateLimit(app := ToolRunner(), tools={"search": "1/m"}), [silent, silent])
    assert (response.status, response.json["id"], app.ran) == (429, None, [])


@pytest.mark.parametrize(
    "body",
    [
        [],
        [[]],
        [1, "two", None, True, 3.5],
        [{}],
        [{"id": 1}],
        [{"method": 3}],
        [None, {"jsonrpc": "2.0", "result": 1}],
    ],
    ids=str,
)
async def test_an_array_without_a_call_is_the_applications_to_refuse(body: Any, limiter: Limiter) -> None:
    app = ToolRunner()
    assert await statuses(MCPRateLimit(app, global_limit="0/m"), 1, body) == [200]
    assert len(app.bodies) == 1


async def test_nested_arrays_and_duplicate_ids_hide_nothing(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"search": "3/m"})
    nested = [
        [tool_call(request_id=1)],
        [[tool_call(request_id=1), "x"], tool_call(request_id=1)],
        tool_call(request_id=1),
    ]
    response = await send_request(wrapped, nested)
    assert (response.status, [answer["id"] for answer in response.json]) == (429, [1, 1, 1, 1])
    assert await statuses(wrapped, 2, nested[:2]) == [200, 429]
    assert app.ran == ["search"] * 3


@pytest.mark.parametrize("policy", ["5/20s", Rule("searching", "5/20s", by="user_or_ip")], ids=["rate", "rule"])
async def test_of_a_batch_too_large_none_run_and_what_is_left_can_be_had(policy: Any, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"search": policy})
    assert await statuses(wrapped, 3, batch(("search", 20))) == [429] * 3
    assert app.ran == []
    assert await statuses(wrapped, 7) == [200] * 5 + [429] * 2
    assert app.ran == ["search"] * 5


async def test_what_clients_send_around_their_calls_costs_a_batch_nothing(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"search": "2/m"}, global_limit="2/m")
    around = [
        tool_call(request_id="i", method="initialize"),
        tool_call(request_id="p", method="ping"),
        tool_call(request_id="l", method="tools/list"),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "name": "search"}},
    ]
    assert await statuses(wrapped, 4, around * 9) == [200] * 4
    assert await statuses(wrapped, 2, [*around, *batch(("search", 2)), *around]) == [200, 429]
    assert app.ran == ["search"] * 2


@pytest.mark.parametrize(
    "body", [[], [[]], [[[[]]], []], [[tool_call("other")], tool_call("other")], [tool_call("other", 1)] * 9], ids=str
)
async def test_odd_batches_raise_nothing(body: Any, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "1/m"})
    assert await statuses(wrapped, 2, body) == [200, 200]
    assert await statuses(wrapped, 2) == [200, 429]
