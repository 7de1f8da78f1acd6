"""Limits within servers: the same over stdio, in memory and over HTTP, and nothing counted twice."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("mcp")
pytest.importorskip("fastmcp")

import fastmcp
import httpx2
from mcp import Client, MCPError
from mcp.client.stdio import stdio_client

from ratelimit import ConfigurationError, Identity, Limiter, Policy, Rate, Rule
from ratelimit.testing import FakeClock
from ratelimit_mcp import FastMCPMiddleware, Limit, MCPMiddleware, MCPRateLimit, mcp_ratelimit
from tests.mcp.asgi import tool_call
from tests.mcp.limited import CARRIERS, KINDS, client_of, filled, http_app, make_server, script
from tests.mcp.served import connected, modern_call, outcome, outcomes, serve

every_kind = pytest.mark.parametrize("kind", KINDS)
every_carrier = pytest.mark.parametrize("carrier", CARRIERS)
MIDDLEWARE: dict[str, Any] = {"sdk": MCPMiddleware, "fastmcp": FastMCPMiddleware}


async def error_of(call: Any) -> MCPError | None:
    try:
        await call
    except MCPError as error:
        return error
    return None


@every_kind
@every_carrier
async def test_tools_are_limited_whatever_carries_the_call(
    kind: str, carrier: str, limiter: Limiter, fake_clock: FakeClock
) -> None:
    fake_clock.advance(20.5)
    async with client_of(make_server(kind, tools={"search": "2/m"}, global_limit="4/m"), carrier) as client:
        caller = await outcome(client)
        await client.list_tools()
        assert await outcomes(client, 1) == ["answered"]
        error = await outcome(client)
        assert isinstance(error, MCPError)
        assert (error.code, error.message) == (
            429,
            "Limit exceeded: Max 2 requests per minute. Please try again later.",
        )
        assert error.data == {"retry_after": 40, "retry_after_ms": 39_500, "limit": 2, "rule": "mcp:search"}
        assert await outcomes(client, 3, "other") == ["answered", "answered", "denied"]
        fake_clock.advance(error.data["retry_after"])
        assert await outcomes(client, 1) == ["answered"]
    assert caller == ("ip:127.0.0.1" if carrier.startswith("http") else "stdio")


@every_kind
@every_carrier
async def test_prompts_resources_and_other_methods_are_limited_too(kind: str, carrier: str, limiter: Limiter) -> None:
    server = make_server(
        kind,
        prompts={"write": "1/m"},
        resources={"docs://{page}/text": "2/m", "docs://readme": "1/m"},
        global_limit="9/m",
    )
    async with client_of(server, carrier) as client:
        await client.get_prompt("write")
        await client.read_resource("docs://readme")
        await client.read_resource("docs://a/text")
        await client.read_resource("docs://b/text")
        errors = [
            await error_of(client.get_prompt("write")),
            await error_of(client.read_resource("docs://readme")),
            await error_of(client.read_resource("docs://c/text")),
            await error_of(client.read_resource("docs://c/te%78t")),
        ]
        await client.list_prompts()
        await client.list_resources()
        await client.list_resource_templates()
    rules = [None if error is None else (error.code, error.data["rule"]) for error in errors]
    page = (429, "mcp-resource:docs://{page}/text")
    assert rules == [(429, "mcp-prompt:write"), (429, "mcp-resource:docs://readme"), page, page]
    caller = "ip:127.0.0.1" if carrier.startswith("http") else "stdio"
    assert limiter.peek(Rate.parse("9/m"), caller, group="mcp").remaining == 5


@every_kind
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_server_on_its_standard_input_and_output_is_limited(kind: str, mode: str) -> None:
    async with Client(stdio_client(script(kind)), mode=mode) as client:
        assert [await outcome(client) for _ in range(2)] == ["stdio", "stdio"]
        error = await outcome(client)
        assert isinstance(error, MCPError)
        assert (error.code, error.data["limit"], error.data["rule"]) == (429, 2, "mcp:search")
        await client.read_resource("docs://readme")
        denied = await error_of(client.read_resource("docs://readme"))
        assert denied is not None
        assert denied.data["rule"] == "mcp-resource:docs://*"
        assert await outcomes(client, 3, "other") == ["answered", "answered", "denied"]


@every_kind
async def test_fastmcps_own_client_is_limited_over_stdio_and_in_memory(kind: str, limiter: Limiter) -> None:
    start = script(kind)
    transport = fastmcp.client.StdioTransport(start.command, start.args, env=start.env, keep_alive=False)
    server: Any = make_server("fastmcp", tools={"search": "2/m"})
    for client in (fastmcp.Client(transport), fastmcp.Client(server)):
        async with client:
            assert await outcomes(client, 3) == ["answered", "answered", "denied"]
            assert "search" in {tool.name for tool in await client.list_tools()}


@every_kind
@every_carrier
async def test_a_denied_tool_may_be_a_result_that_the_model_reads(kind: str, carrier: str, limiter: Limiter) -> None:
    server = make_server(kind, tools={"search": "1/m"}, prompts={"write": "0/m"}, as_result=True)
    async with client_of(server, carrier) as client:
        assert not (await client.call_tool("search")).is_error
        denied = await client.call_tool("search")
        (content,) = denied.content
        assert (denied.is_error, content.text) == (  # type: ignore[union-attr]
            True,
            "Limit exceeded: Max 1 request per minute. Please try again later. Retry after 60 seconds.",
        )
        assert denied.meta is not None
        assert denied.meta["ratelimit"] == {
            "retry_after": 60,
            "retry_after_ms": 60_000,
            "limit": 1,
            "rule": "mcp:search",
        }
        error = await error_of(client.get_prompt("write"))
        assert error is not None
        assert error.code == 429


@every_kind
async def test_a_wait_that_does_not_help_is_told_the_model_as_such(kind: str, limiter: Limiter) -> None:
    async with client_of(make_server(kind, tools={"search": "0/m"}, as_result=True), "memory") as client:
        (content,) = (await client.call_tool("search")).content
    assert content.text.endswith("Please try again later. Retrying will not help.")  # type: ignore[union-attr]


@every_kind
async def test_a_decorated_tools_denial_is_a_result_too_where_the_middleware_makes_them(
    kind: str, limiter: Limiter
) -> None:
    server = make_server(kind, as_result=True)
    server.tool("inner")(mcp_ratelimit("0/m", tool="inner")(who_else))
    async with client_of(server, "memory") as client:
        denied = await client.call_tool("inner")
        assert denied.is_error
        assert denied.meta is not None
        assert denied.meta["ratelimit"]["rule"] == "mcp:inner"


async def who_else() -> str:
    return "ran"


@every_kind
@every_carrier
async def test_a_cost_is_told_from_the_arguments(kind: str, carrier: str, limiter: Limiter) -> None:
    limit = Limit("9/m", cost=lambda name, arguments: len(arguments["words"]))
    async with client_of(make_server(kind, tools={"search": limit}), carrier) as client:
        assert not isinstance(await outcome(client, words="12345"), MCPError)
        denied, unknown = await outcome(client, words="12345"), await outcome(client)
        assert isinstance(denied, MCPError)
        assert isinstance(unknown, MCPError)
    assert (denied.code, unknown.code) == (429, -32602)
    assert unknown.message == "Invalid params: what this call costs cannot be told"


@every_kind
async def test_over_http_such_a_refusal_has_the_status_that_the_protocol_gives_it(kind: str, limiter: Limiter) -> None:
    app = http_app(make_server(kind, tools={"search": Limit("9/m", cost=lambda name, arguments: arguments["pages"])}))
    older = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    async with serve(app) as url, httpx2.AsyncClient() as http:
        newest = await http.post(url, **modern_call())
        begun = await http.post(
            url, json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}, headers=older
        )
        session = {**older, "mcp-session-id": begun.headers["mcp-session-id"]}
        await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        old = await http.post(url, json=tool_call("search", 9), headers=session)
    assert (newest.status_code, newest.json()["error"]["code"]) == (400, -32602)
    assert (old.status_code, '"code":-32602' in old.text) == (200, True)


@every_kind
async def test_a_malformed_call_counts_and_is_the_servers_to_refuse(kind: str, limiter: Limiter) -> None:
    app = http_app(make_server(kind, global_limit="2/m", as_result=True))
    async with serve(app) as url, httpx2.AsyncClient() as http:
        answers = [(await http.post(url, **modern_call(arguments=[1]))).json() for _ in range(3)]
    assert [answer["error"]["code"] for answer in answers[:2]] == [-32602, -32602]
    # FastMCP has no result to give for a message that it did not understand.
    assert answers[2]["result"]["isError"] if kind == "sdk" else answers[2]["error"]["code"] == 429


@every_kind
async def test_rules_see_method_and_tool(kind: str, limiter: Limiter) -> None:
    policy = Policy(
        Rule("help", action="skip", match={"tool": "other"}),
        Rule("tools", "1/m", by=("user_or_ip", "tool"), match={"method": "tools/call", "protocol": "mcp"}),
    )
    async with client_of(make_server(kind, global_limit=policy), "memory") as client:
        assert await outcomes(client, 2) == ["answered", "denied"]
        assert await outcomes(client, 2, "fetch") == ["answered", "denied"]
        assert await outcomes(client, 3, "other") == ["answered"] * 3
        await client.get_prompt("write")


# Counted once


@every_kind
@pytest.mark.parametrize("carrier", ["http", "http-legacy"])
async def test_what_the_wrapper_counted_is_not_counted_again(kind: str, carrier: str, limiter: Limiter) -> None:
    limits: Any = {"tools": {"search": "3/m", "other": "AI_QUERY"}, "global_limit": Rule("all", "6/m", by="ip")}
    server = make_server(kind, **limits)
    server.tool("twice")(mcp_ratelimit("AI_QUERY")(who_else))
    wrapped = MCPRateLimit(http_app(server), **{**limits, "tools": {**limits["tools"], "twice": "AI_QUERY"}})
    mode = "legacy" if carrier.endswith("legacy") else "auto"
    async with serve(wrapped) as url, connected(url, mode) as (client, _):
        assert await outcomes(client, 4) == ["answered"] * 3 + ["denied"]
        assert await outcomes(client, 4, "twice") == ["answered"] * 3 + ["denied"]
    assert limiter.peek("AI_QUERY", "ip:127.0.0.1").remaining == 17
    assert limiter.peek(limits["global_limit"], Identity(ip="127.0.0.1"), cost=0).remaining == 0


@every_kind
async def test_what_only_the_middleware_limits_is_counted_within_the_wrapper(kind: str, limiter: Limiter) -> None:
    server = make_server(kind, tools={"search": "2/m", "other": Limit("9/m", key="global")}, global_limit=None)
    wrapped = MCPRateLimit(http_app(server), tools={"other": Limit("9/m", key="global")}, caller=lambda scope: "42")
    async with serve(wrapped) as url, connected(url) as (client, _):
        assert await outcome(client) == "user:42"
        assert await outcomes(client, 2) == ["answered", "denied"]
        await outcomes(client, 2, "other")
    assert limiter.peek("MCP_GLOBAL", "user:42").remaining == 95
    assert limiter.peek(Rate.parse("2/m"), "user:42", group="mcp:search").remaining == 0
    assert limiter.peek(Rate.parse("9/m"), "global", group="mcp:other").remaining == 7


async def test_the_decorator_counts_what_costs_more_or_is_for_another_caller(limiter: Limiter) -> None:
    server = make_server("sdk", tools={"a": "AI_QUERY", "b": "AI_QUERY", "c": "AI_QUERY"}, global_limit=None)
    server.tool("a")(mcp_ratelimit("AI_QUERY", cost=5)(who_else))
    server.tool("b")(mcp_ratelimit("AI_QUERY", key="global")(who_else))
    server.tool("c")(mcp_ratelimit(rate="AI_QUERY", tool="c")(who_else))
    async with client_of(server, "http") as client:
        for tool in "abc":
            await outcomes(client, 1, tool)
    assert limiter.peek("AI_QUERY", "ip:127.0.0.1").remaining == 20 - 3 - 5
    assert limiter.peek("AI_QUERY", "global").remaining == 19
    assert limiter.peek("AI_QUERY", "ip:127.0.0.1", group="mcp:c").remaining == 19


async def test_limits_of_two_limiters_are_two(limiter: Limiter) -> None:
    other = Limiter()
    server = make_server("sdk", tools={"a": "AI_QUERY"}, limiter=other)
    server.tool("a")(mcp_ratelimit("AI_QUERY")(who_else))
    async with client_of(server, "memory") as client:
        await outcomes(client, 2, "a")
    assert (limiter.peek("AI_QUERY", "stdio").remaining, other.peek("AI_QUERY", "stdio").remaining) == (18, 18)


@every_kind
async def test_the_next_request_counts_anew(kind: str, limiter: Limiter) -> None:
    async with client_of(make_server(kind, global_limit="9/m"), "memory-legacy") as client:
        await outcomes(client, 3)
        assert limiter.peek(Rate.parse("9/m"), "stdio", group="mcp").remaining == 6


async def test_a_tool_that_calls_tools_spends_from_theirs_and_from_the_cap_once(limiter: Limiter) -> None:
    tools = Rule("tools", "2/m", by=("user_or_ip", "tool"))
    server = make_server("fastmcp", tools={"search": tools, "outer": tools, "fetch": "9/m"})

    @server.tool  # type: ignore[untyped-decorator]
    async def outer() -> str:
        await server.call_tool("search")
        await server.call_tool("fetch")
        return "done"

    async with fastmcp.Client(server) as client:
        assert await outcomes(client, 2, "outer") == ["answered", "answered"]
        assert await outcomes(client, 1) == ["denied"]
    assert limiter.peek("MCP_GLOBAL", "stdio").remaining == 98
    assert limiter.peek(Rate.parse("9/m"), "stdio", group="mcp:fetch").remaining == 7


# Callers


@every_kind
@pytest.mark.parametrize("carrier", ["http", "http-legacy"])
async def test_the_middleware_may_be_told_who_calls(kind: str, carrier: str, limiter: Limiter) -> None:
    server = make_server(kind, tools={"search": "1/m"}, caller=lambda scope: dict(scope["headers"])[b"x-user"].decode())
    async with serve(http_app(server)) as url:
        for user in ("7", "8"):
            async with connected(url, "legacy" if carrier.endswith("legacy") else "auto", **{"x-user": user}) as (
                client,
                _,
            ):
                assert await outcome(client) == f"user:{user}"
                assert await outcomes(client, 1) == ["denied"]


# Servers within servers


async def test_the_name_that_the_client_called_is_what_counts(limiter: Limiter) -> None:
    child = filled(fastmcp.FastMCP("child"))
    parent = fastmcp.FastMCP("parent", middleware=[FastMCPMiddleware(tools={"child_search": "1/m", "search": "0/m"})])
    parent.mount(child, namespace="child")
    async with fastmcp.Client(parent) as client:
        assert await outcomes(client, 2, "child_search") == ["answered", "denied"]
        assert await outcomes(client, 3, "child_fetch") == ["answered"] * 3
    assert limiter.peek("MCP_GLOBAL", "stdio").remaining == 96


async def test_a_mounted_servers_own_limits_hold_by_its_own_names_and_the_cap_counts_once(limiter: Limiter) -> None:
    child = make_server("fastmcp", tools={"search": "1/m"})
    limit = FastMCPMiddleware(tools={"child_search": "9/m"})
    parent = fastmcp.FastMCP("parent", middleware=[limit], mask_error_details=True)
    parent.mount(child, namespace="child")
    async with fastmcp.Client(parent) as client:
        found = [await client.call_tool("child_search", raise_on_error=False) for _ in range(2)]
    assert [result.is_error for result in found] == [False, True]
    assert found[1].content[0].text == "Limit exceeded: Max 1 request per minute. Please try again later."
    assert limiter.peek("MCP_GLOBAL", "stdio").remaining == 98
    assert limiter.peek(Rate.parse("9/m"), "stdio", group="mcp:child_search").remaining == 7


async def test_a_proxys_names_are_those_that_its_clients_call(limiter: Limiter) -> None:
    backend = filled(fastmcp.FastMCP("backend"))
    proxy = fastmcp.server.create_proxy(backend)
    proxy.add_middleware(FastMCPMiddleware(tools={"search": "1/m"}))
    async with fastmcp.Client(proxy) as client:
        assert await outcomes(client, 2) == ["answered", "denied"]
        assert await outcomes(client, 2, "other") == ["answered"] * 2


# Mistakes


@every_kind
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tools": {"search": "AI_QUERRY"}}, r"tools\['search'\]: .*AI_QUERRY"),
        ({"error_code": -32000}, "-32000"),
        ({"caller": "user"}, "'user'"),
        ({"exempt": "ping"}, "'ping'"),
    ],
)
def test_mistakes_are_told_when_the_middleware_is_made(kind: str, options: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        MIDDLEWARE[kind](**options)
