"""Limits inside tools: the decorator, the check, and what they see of the request."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")
pytest.importorskip("fastmcp")

import fastmcp
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.mcpserver import Context, MCPServer

from ratelimit import ConfigurationError, Identity, Limiter, Rate, RateLimitExceeded, RateLimits, StoreError
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock
from ratelimit_mcp import (
    MCPRateLimit,
    MCPRateLimitExceeded,
    check_mcp_rate_limit,
    check_mcp_rate_limit_sync,
    mcp_identity,
    mcp_ratelimit,
    mcp_scope,
)
from tests.mcp.served import APPS, MODES, connected, outcome, outcomes, serve

every_app = pytest.mark.parametrize("make_app", APPS.values(), ids=APPS)
every_mode = pytest.mark.parametrize("mode", MODES)
BOTH = [MCPServer, fastmcp.FastMCP]


def http_app(server: Any) -> Any:
    return server.streamable_http_app() if isinstance(server, MCPServer) else server.http_app()


@every_app
@every_mode
async def test_a_tool_sees_the_scope_of_its_own_request_even_in_an_old_session(
    make_app: Any, mode: str, limiter: Limiter
) -> None:
    async with serve(MCPRateLimit(make_app())) as url, connected(url, mode) as (client, http):
        seen = []
        for n in range(3):
            http.headers["x-note"] = str(n)
            seen.append(await outcome(client))
    assert seen == ["0", "1", "2"]


@pytest.mark.parametrize("kind", BOTH)
@every_mode
async def test_calls_at_the_same_time_do_not_see_each_others_scope(kind: Any, mode: str, limiter: Limiter) -> None:
    server, all_here = kind("s"), asyncio.Barrier(4)

    @server.tool()  # type: ignore[untyped-decorator]
    async def search() -> str:
        await all_here.wait()
        scope = mcp_scope.get()
        assert scope is not None
        return dict(scope["headers"])[b"x-note"].decode()

    async def one(url: str, note: str) -> Any:
        async with connected(url, mode, **{"x-note": note}) as (client, _):
            return await outcome(client)

    async with serve(MCPRateLimit(http_app(server))) as url:
        assert await asyncio.gather(*(one(url, note) for note in "abcd")) == [*"abcd"]


@pytest.mark.parametrize("kind", BOTH)
@every_mode
async def test_a_sync_tool_runs_in_a_thread_and_sees_the_scope(kind: Any, mode: str, limiter: Limiter) -> None:
    server = kind("s")

    @server.tool()  # type: ignore[untyped-decorator]
    @mcp_ratelimit("2/m")
    def search() -> str:
        return mcp_identity().key()

    wrapped = MCPRateLimit(http_app(server), caller=lambda scope: "42")
    async with serve(wrapped) as url, connected(url, mode) as (client, _):
        assert await outcome(client) == "user:42"
        await outcome(client)
        denied = await outcome(client)
    assert "Limit exceeded: Max 2 requests per minute" in str(denied)


@pytest.mark.parametrize("is_async", [True, False])
@every_mode
async def test_a_denied_tool_of_the_sdk_gives_a_jsonrpc_error_with_the_wait(
    is_async: bool, mode: str, limiter: Limiter, fake_clock: FakeClock
) -> None:
    server, ran = MCPServer("s"), []

    async def search_async(query: str = "") -> str:
        ran.append(query)
        return query

    def search(query: str = "") -> str:
        ran.append(query)
        return query

    server.tool("search")(mcp_ratelimit("AI_QUERY")(search_async if is_async else search))
    async with Client(server, mode="legacy" if mode == "legacy" else "auto") as client:
        limiter.check("AI_QUERY", "stdio", cost=19)
        assert await outcome(client, query="first") == "first"
        fake_clock.advance(20.5)
        error = await outcome(client)
    assert isinstance(error, MCPError)
    assert (error.code, error.message) == (429, "Limit exceeded: Max 20 requests per minute. Please try again later.")
    assert error.data == {"retry_after": 40, "retry_after_ms": 39_500, "limit": 20, "rule": "AI_QUERY"}
    assert ran == ["first"]


@pytest.mark.parametrize("masked", [True, False])
async def test_a_denied_tool_of_fastmcp_gives_an_error_result_with_the_message(masked: bool, limiter: Limiter) -> None:
    server = fastmcp.FastMCP("s", mask_error_details=masked)

    @server.tool
    @mcp_ratelimit("0/m")
    async def search() -> str:
        return "ran"

    async with fastmcp.Client(server) as client:
        result = await client.call_tool("search", raise_on_error=False)
    assert result.is_error
    assert result.content[0].text == "Limit exceeded: Max 0 requests per minute. Please try again later."


async def test_the_exception_is_the_engines_and_the_sdks(limiter: Limiter) -> None:
    @mcp_ratelimit("0/m", error_code=7)
    async def search() -> None:
        raise AssertionError("ran")

    with pytest.raises(MCPRateLimitExceeded, match=r"^Limit exceeded: Max 0 requests") as caught:
        await search()
    assert isinstance(caught.value, RateLimitExceeded)
    assert isinstance(caught.value, MCPError)
    assert (caught.value.code, caught.value.decision.limit) == (7, 0)


@pytest.mark.parametrize("kind", BOTH)
async def test_the_tools_schema_and_description_stay_as_they_were(kind: Any, limiter: Limiter) -> None:
    async def search(query: str, limit: int = 10, *, deep: bool = False) -> list[str]:
        """Finds documents."""
        return [query] * limit

    listed = []
    for function in (search, mcp_ratelimit("AI_QUERY")(search)):
        server = kind("s")
        server.tool()(function)
        async with Client(server) if kind is MCPServer else fastmcp.Client(server) as client:
            found = await client.list_tools()
            (tool,) = getattr(found, "tools", found)
            listed.append((tool.name, tool.description, tool.input_schema, tool.output_schema))
    assert listed[0] == listed[1]
    assert inspect.iscoroutinefunction(mcp_ratelimit("AI_QUERY")(search))
    assert inspect.signature(mcp_ratelimit("AI_QUERY")(search)) == inspect.signature(search)


async def test_a_category_is_shared_and_a_rate_is_the_functions_own(limiter: Limiter) -> None:
    @mcp_ratelimit(RateLimits.AI_QUERY)
    async def one() -> None: ...

    @mcp_ratelimit("3/m")
    async def two() -> None: ...

    @mcp_ratelimit(rate="AI_QUERY", tool="three")
    async def three() -> None: ...

    for function in (one, two, three):
        await function()
    assert limiter.peek("AI_QUERY", "stdio").remaining == 19
    assert limiter.peek("AI_QUERY", "stdio", group="mcp:three").remaining == 19
    own = f"mcp:{__name__}.test_a_category_is_shared_and_a_rate_is_the_functions_own.<locals>.two"
    assert limiter.peek(Rate.parse("3/m"), "stdio", group=own).remaining == 2


async def test_key_rate_and_cost_may_depend_on_the_tools_arguments(limiter: Limiter) -> None:
    @mcp_ratelimit(
        rate=lambda identity, group, default_group="": "10/m" if identity == "paying" else "2/m",
        key=lambda identity, group, default_group="": f"{identity}:{group}",
        cost=lambda identity, group, default_group="": len(group),
    )
    async def search(identity: str, group: str, default_group: str = "") -> str:
        return identity

    assert await search(identity="paying", group="abcde") == "paying"
    assert await search("paying", group="abcde", default_group="x") == "paying"
    for who, group in (("paying", "abcde"), ("free", "abc")):
        with pytest.raises(MCPRateLimitExceeded):
            await search(who, group)


async def test_the_check_tells_the_decision_and_raises_nothing(limiter: Limiter) -> None:
    assert [bool(await check_mcp_rate_limit("3/m", tool="search")) for _ in range(4)] == [True] * 3 + [False]
    assert (await check_mcp_rate_limit(rate=Rate.parse("3/m"), tool="search")).rule == "mcp:search"
    assert (await check_mcp_rate_limit("AI_QUERY")).rule == "AI_QUERY"
    assert (await check_mcp_rate_limit()).rule == "MCP_GLOBAL"
    assert (await check_mcp_rate_limit("AI_QUERY", user=42)).key == "user:42"
    assert (await check_mcp_rate_limit("AI_QUERY", user=Identity(name="tenant:9"), cost=3)).remaining == 17


async def test_the_check_has_a_sync_form_for_tools_in_threads(limiter: Limiter) -> None:
    server = MCPServer("s")

    @server.tool()
    def search() -> str:
        return f"{check_mcp_rate_limit_sync('2/m', tool='search').allowed} {check_mcp_rate_limit_sync().key}"

    wrapped = MCPRateLimit(server.streamable_http_app(), global_limit=None)
    async with serve(wrapped) as url, connected(url) as (client, _):
        found = [await outcome(client) for _ in range(3)]
    assert found == ["True ip:127.0.0.1", "True ip:127.0.0.1", "False ip:127.0.0.1"]


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (lambda: mcp_ratelimit("AI_QUERRY"), "AI_QUERRY"),
        (lambda: mcp_ratelimit("3/x"), "3/x"),
        (lambda: mcp_ratelimit(rate="nothing"), "nothing"),
        (lambda: mcp_ratelimit(), "rule"),
        (lambda: mcp_ratelimit("AI_QUERY", rate="3/m"), "rule"),
        (lambda: mcp_ratelimit("AI_QUERY", key="usr"), "usr"),
        (lambda: mcp_ratelimit("AI_QUERY", cost=-1), "-1"),
        (lambda: mcp_ratelimit("AI_QUERY", error_code=-32001), "-32001"),
    ],
)
def test_mistakes_are_told_at_decoration(mistake: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        mistake()


async def test_a_rate_without_a_tools_name_is_refused(limiter: Limiter) -> None:
    with pytest.raises(ConfigurationError, match="tool="):
        await check_mcp_rate_limit("3/m")
    with pytest.raises(ConfigurationError, match="tool="):
        check_mcp_rate_limit_sync(rate="AI_QUERY")


@pytest.mark.parametrize("key", ["ip", "user_or_ip", "global"])
async def test_the_wrappers_caller_is_the_tools_caller(key: str, limiter: Limiter) -> None:
    server = MCPServer("s")

    @server.tool()
    @mcp_ratelimit("AI_QUERY", key=key)
    async def ask() -> str:
        return "ok"

    wrapped = MCPRateLimit(server.streamable_http_app(), tools={"ask": "READ_HEAVY"}, caller=lambda scope: 42)
    async with serve(wrapped) as url, connected(url) as (client, _):
        await outcomes(client, 3, "ask")
    expected = {"ip": "ip:127.0.0.1", "user_or_ip": "user:42", "global": "global"}[key]
    assert limiter.peek("AI_QUERY", Identity(user="42", ip="127.0.0.1"), key=key).remaining == 37
    assert limiter.peek("AI_QUERY", expected).remaining == 17
    assert limiter.peek("READ_HEAVY", Identity(user="42")).remaining == 17


async def test_fastmcps_request_is_found_without_the_wrapper(limiter: Limiter) -> None:
    server = fastmcp.FastMCP("s")

    @server.tool
    @mcp_ratelimit("2/m")
    async def search() -> str:
        return mcp_identity().key()

    async with serve(server.http_app()) as url, connected(url) as (client, _):
        assert await outcome(client) == "ip:127.0.0.1"


async def test_the_sdks_request_is_found_by_its_context_without_the_wrapper(limiter: Limiter) -> None:
    server = MCPServer("s")

    @server.tool()
    @mcp_ratelimit("AI_QUERY")
    async def search(ctx: Context[Any, Any]) -> str:
        return (await check_mcp_rate_limit("READ_HEAVY", ctx=ctx)).key

    async with serve(server.streamable_http_app()) as url, connected(url) as (client, _):
        assert await outcome(client) == "ip:127.0.0.1"
    assert limiter.peek("AI_QUERY", "ip:127.0.0.1").remaining == 19


def test_a_context_outside_of_a_request_tells_nothing() -> None:
    assert mcp_identity(Context()).key() == "stdio"


async def test_over_stdio_the_tool_is_limited_from_the_inside() -> None:
    script = str(Path(__file__).with_name("stdio_server.py"))
    server = StdioServerParameters(
        command=sys.executable, args=[script], env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    )
    for mode in ("auto", "legacy"):
        async with Client(stdio_client(server), mode=mode) as client:
            assert [await outcome(client, "search") for _ in range(2)] == ["stdio", "stdio"]
            error = await outcome(client, "search")
            assert isinstance(error, MCPError)
            assert (error.code, error.data["limit"], error.data["rule"]) == (429, 2, "mcp:search")


async def test_a_failing_store_is_the_outage_policys_business(limiter: Limiter) -> None:
    class Broken:
        holds = frozenset({"fixed"})

        def counter(self, *_: Any) -> None: ...

        async def aapply(self, *_: Any) -> Any:
            raise StoreError("no store")

    @mcp_ratelimit("1/m", limiter=Limiter(Broken(), settings=Settings(fail_open=True)))  # type: ignore[arg-type]
    async def search() -> str:
        return "ran"

    assert await search() == "ran"
