"""What a call takes from its limit: fixed, or told by a function of its arguments."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from ratelimit import ConfigurationError, Identity, Limiter, Policy, Rate, Rule
from ratelimit.rates import MAX_LIMIT
from ratelimit_mcp import Limit, MCPRateLimit
from tests.mcp.asgi import ToolRunner, send_request, statuses, tool_call

CALLER = "ip:203.0.113.7"


def call(request_id: int = 1, name: str = "search", **arguments: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }


def pages(name: str, arguments: Any) -> Any:
    return arguments["pages"]


async def test_a_fixed_cost_is_taken_from_the_tools_limit_and_one_from_the_cap(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"export": Limit("7/h", cost=3)})
    assert await statuses(wrapped, 3, tool_call("export")) == [200, 200, 429]
    assert limiter.peek(Rate.parse("7/h"), CALLER, group="mcp:export").remaining == 1
    assert limiter.peek("MCP_GLOBAL", CALLER).remaining == 98


async def test_a_function_tells_the_cost_from_name_and_arguments(limiter: Limiter) -> None:
    asked: list[Any] = []

    def cost(name: str, arguments: Any) -> int:
        asked.append((name, arguments))
        return len(arguments["words"])

    wrapped = MCPRateLimit(ToolRunner(), tools={"s*": Limit("AI_QUERY", cost=cost)})
    assert await statuses(wrapped, 3, call(words=["a", {"b": [1]}, *"cdefg"])) == [200, 200, 429]
    assert asked[0] == ("search", {"words": ["a", {"b": [1]}, *"cdefg"]})
    assert limiter.peek("AI_QUERY", CALLER).remaining == 6
    assert await statuses(wrapped, 1, call(words="123456")) == [200]


async def test_prompts_hand_on_arguments_and_resources_their_uri(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(
        ToolRunner(),
        prompts={"write": Limit("5/m", cost=pages)},
        resources={"docs://*": Limit("10/m", cost=lambda uri, arguments: len(uri) - len("docs://"))},
    )
    write = {**call(name="write", pages=5), "method": "prompts/get"}
    assert await statuses(wrapped, 2, write) == [200, 429]
    reads = [
        {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": f"docs://{path}"}}
        for path in ("aaaaaa", "bbbbb", "cccc")
    ]
    assert [await statuses(wrapped, 1, read) for read in reads] == [[200], [429], [200]]


async def test_a_batch_costs_what_its_calls_cost_together(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"search": Limit("10/m", cost=pages)})
    assert await statuses(wrapped, 1, [call(1, pages=4), call(2, pages=7)]) == [429]
    assert await statuses(wrapped, 1, [call(1, pages=4), call(2, pages=6)]) == [200]
    assert app.ran == ["search", "search"]


async def test_a_call_that_costs_nothing_of_its_tool_still_counts_for_the_cap(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": Limit("1/m", cost=pages)}, global_limit="3/m")
    assert await statuses(wrapped, 4, call(pages=0)) == [200, 200, 200, 429]
    free = MCPRateLimit(ToolRunner(), tools={"free": Limit("1/m", cost=0)}, global_limit=None)
    assert await statuses(free, 3, tool_call("free")) == [200] * 3


async def test_the_caps_own_category_takes_the_cost_once(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": Limit("MCP_GLOBAL", cost=40)})
    assert await statuses(wrapped, 3) == [200, 200, 429]
    assert limiter.peek("MCP_GLOBAL", CALLER).remaining == 20


async def test_a_limit_may_count_by_address_or_for_everybody(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(
        ToolRunner(), tools={"search": Limit("2/m", key="global"), "ask": Limit(rate="AI_QUERY")}, global_limit=None
    )
    clients: Any = [("203.0.113.7", 1), ("198.51.100.9", 1), ("192.0.2.1", 1)]
    assert [await statuses(wrapped, 1, client=client) for client in clients] == [[200], [200], [429]]
    await statuses(wrapped, 1, tool_call("ask"))
    assert limiter.peek("AI_QUERY", CALLER).remaining == 20
    assert limiter.peek("AI_QUERY", CALLER, group="mcp:ask").remaining == 19


async def test_a_cost_beyond_measure_is_denied_and_no_error(limiter: Limiter) -> None:
    rule = Policy(Rule("units", "9/m", by="ip", cost=1000), Rule("shadow", "9/m", by="global", action="log"))
    wrapped = MCPRateLimit(
        app := ToolRunner(), tools={"search": Limit("9/m", cost=pages), "by_rule": Limit(rule, pages)}
    )
    for name in ("search", "by_rule"):
        response = await send_request(wrapped, [call(n, name, pages=10**30) for n in range(3)])
        assert (response.status, response.json[0]["error"]["data"]["retry_after"]) == (429, None)
    assert app.ran == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "the cost of tools/call 'search' cannot be told: KeyError"),
        ({"pages": "500"}, "the cost of tools/call 'search' is no whole number >= 0: '500'"),
        ({"pages": -1}, "the cost of tools/call 'search' is no whole number >= 0: -1"),
        ({"pages": 1.5}, "the cost of tools/call 'search' is no whole number >= 0: 1.5"),
        ({"pages": True}, "the cost of tools/call 'search' is no whole number >= 0: True"),
        ({"pages": None}, "the cost of tools/call 'search' is no whole number >= 0: None"),
    ],
)
async def test_a_call_whose_cost_cannot_be_told_is_refused_and_never_cheap(
    arguments: Any, told: str, limiter: Limiter, caplog: pytest.LogCaptureFixture
) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"search": Limit("9/m", cost=pages)})
    with caplog.at_level(logging.WARNING, "ratelimit.mcp"):
        response = await send_request(wrapped, call(7, **arguments))
    assert (response.status, response.json) == (
        400,
        {
            "jsonrpc": "2.0",
            "id": 7,
            "error": {"code": -32602, "message": "Invalid params: what this call costs cannot be told"},
        },
    )
    assert (app.ran, [record.message for record in caplog.records]) == ([], [told])
    assert limiter.peek("MCP_GLOBAL", CALLER).remaining == 100


@pytest.mark.parametrize("arguments", ['{"pages":1,"pages":500}', '{"pages":1,"x":[{"a":1,"a":2}]}'])
async def test_an_argument_that_occurs_twice_is_refused_where_the_cost_depends_on_it(
    arguments: str, limiter: Limiter
) -> None:
    body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"search","arguments":{arguments}}}}}'
    priced = MCPRateLimit(ToolRunner(), tools={"search": Limit("9/m", cost=pages)})
    assert (await send_request(priced, body.encode())).status == 400
    assert (await send_request(MCPRateLimit(ToolRunner(), tools={"search": "9/m"}), body.encode())).status == 200


@pytest.mark.parametrize("arguments", [[1], "pages", None, 3])
async def test_arguments_that_are_no_object_are_an_empty_one(arguments: Any, limiter: Limiter) -> None:
    seen: list[Any] = []
    cost: Any = lambda name, given: seen.append(given) or 1  # noqa: E731
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": Limit("9/m", cost=cost)})
    body = {**call(), "params": {"name": "search", "arguments": arguments}}
    assert (await send_request(wrapped, json.dumps(body).encode())).status == 200
    assert seen == [{}]


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (lambda: Limit(), "give either a rule"),
        (lambda: Limit("5/h", rate="AI_QUERY"), "give either a rule"),
        (lambda: Limit("5/h", cost=6), "cost 6 is more than '5/h' ever has"),
        (lambda: Limit(rate="9/h; 5/m", cost=6), "cost 6 is more than"),
        (lambda: Limit("5/h", cost=-1), "cost -1"),
        (lambda: Limit("5/h", cost=1.5), "cost 1.5"),  # type: ignore[arg-type]
        (lambda: Limit("5/h", cost=MAX_LIMIT + 1), "cost 1000000000001"),
        (lambda: Limit("5/h", cost=send_request), "coroutine"),  # type: ignore[arg-type]
        (lambda: Limit("5/h", key="usr"), "usr"),
        (lambda: Limit("5/h", key=len), "key="),  # type: ignore[arg-type]
        (lambda: Limit(rate=len), "rate="),  # type: ignore[arg-type]
        (lambda: Limit(Rule("r", "1/m"), key="ip"), "key='ip' has no effect"),
        (lambda: Limit("AI_QUERRY"), "AI_QUERRY"),
    ],
)
def test_mistakes_are_told_when_a_limit_is_made(limit: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        limit()


async def test_a_rule_takes_its_cost_times_the_limits(limiter: Limiter) -> None:
    rule = Rule("units", "12/m", by="ip", cost=2)
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": Limit(rule, cost=3)})
    assert await statuses(wrapped, 3) == [200, 200, 429]
    assert limiter.peek(rule, Identity(ip="203.0.113.7"), cost=0).remaining == 0
