"""Real clients over real sockets: the SDK's and FastMCP's, the current protocol and the older handshake."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any

import pytest

pytest.importorskip("mcp")
pytest.importorskip("fastmcp")

import fastmcp
import httpx2
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from starlette.applications import Starlette
from starlette.routing import Mount

from ratelimit import Limiter
from ratelimit.testing import FakeClock, isolated
from ratelimit_mcp import MCPRateLimit
from tests.mcp.served import (
    APPS,
    MODES,
    Journal,
    connected,
    fastmcp_app,
    modern_call,
    outcome,
    outcomes,
    sdk_app,
    serve,
)

every_app = pytest.mark.parametrize("make_app", APPS.values(), ids=APPS)
every_mode = pytest.mark.parametrize("mode", MODES)


@every_app
@every_mode
async def test_of_n_plus_one_calls_n_are_answered(make_app: Any, mode: str, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(make_app(), tools={"search": "3/m"}, global_limit="5/m")
    async with serve(wrapped) as url, connected(url, mode) as (client, _):
        assert await outcomes(client, 4) == ["answered"] * 3 + ["denied"]
        assert await outcomes(client, 3, "other") == ["answered"] * 2 + ["denied"]


@every_app
@every_mode
async def test_the_error_reaches_the_caller_with_code_message_and_wait(
    make_app: Any, mode: str, limiter: Limiter, fake_clock: FakeClock
) -> None:
    fake_clock.advance(30.5)
    async with serve(MCPRateLimit(make_app(), tools={"search": "0/m"})) as url, connected(url, mode) as (client, _):
        error = await outcome(client)
        assert isinstance(error, MCPError)
        assert (error.code, error.message) == (
            429,
            "Limit exceeded: Max 0 requests per minute. Please try again later.",
        )
        assert error.data == {"retry_after": None, "retry_after_ms": None, "limit": 0, "rule": "mcp:search"}
        limiter.check("AI_QUERY", "ip:127.0.0.1", cost=20)
    async with (
        serve(MCPRateLimit(make_app(), tools={"search": "AI_QUERY"})) as url,
        connected(url, mode) as (client, _),
    ):
        error = await outcome(client)
        assert isinstance(error, MCPError)
        assert error.data == {"retry_after": 30, "retry_after_ms": 29_500, "limit": 20, "rule": "AI_QUERY"}


@every_app
@every_mode
async def test_connecting_and_listing_work_when_nothing_is_left(make_app: Any, mode: str, limiter: Limiter) -> None:
    journal = Journal(MCPRateLimit(make_app(), global_limit="1/m"))
    async with serve(journal) as url:
        async with connected(url, mode) as (client, _):
            assert await outcomes(client, 2) == ["answered", "denied"]
        async with connected(url, mode) as (client, _):
            newest = client.protocol_version
            assert {tool.name for tool in (await client.list_tools()).tools} == {"search", "fetch", "other"}
            assert await outcomes(client, 1) == ["denied"]
    assert newest == ("2025-11-25" if mode == "legacy" else "2026-07-28")
    assert journal.statuses("server/discover") == ({200} if mode == "auto" else set())
    assert journal.statuses("initialize") == ({200} if mode == "legacy" else set())
    assert journal.statuses("tools/list") == {200}
    assert journal.statuses("tools/call") == {200, 429}


@pytest.mark.parametrize("options", [{"json_response": True}, {"stateless_http": True}, {}], ids=str)
@every_app
@every_mode
async def test_every_way_to_serve_is_limited_alike(options: Any, make_app: Any, mode: str, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(make_app(**options), tools={"search": "2/m"})
    async with serve(wrapped) as url, connected(url, mode) as (client, _):
        assert await outcomes(client, 3) == ["answered"] * 2 + ["denied"]


@every_mode
async def test_fastmcps_client_sees_the_error_too(mode: str, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(fastmcp_app(), tools={"search": "2/m"})
    async with serve(wrapped) as url, fastmcp.Client(url, mode=mode) as client:
        assert await outcomes(client, 3) == ["answered"] * 2 + ["denied"]
        assert [tool.name for tool in await client.list_tools()] == ["search", "fetch", "other"]


@every_app
async def test_sessions_and_client_names_make_no_new_budget(make_app: Any, limiter: Limiter) -> None:
    async with serve(MCPRateLimit(make_app(), tools={"search": "3/m"})) as url:
        found = []
        for n in range(5):
            async with connected(url, "legacy", **{"user-agent": f"agent-{n}"}) as (client, _):
                found += await outcomes(client, 1)
    assert found == ["answered"] * 3 + ["denied"] * 2


@every_app
@every_mode
async def test_eight_clients_at_once_get_exactly_the_limit(make_app: Any, mode: str, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(make_app(), tools={"search": "20/m"})

    async def one_client(url: str) -> list[str]:
        async with connected(url, mode) as (client, _):
            calls = [outcomes(client, 1) for _ in range(5)]
            return [found for (found,) in await asyncio.gather(*calls)]

    async with serve(wrapped) as url:
        found = await asyncio.gather(*(one_client(url) for _ in range(8)))
    assert Counter(chain(*found)) == {"answered": 20, "denied": 20}


@every_mode
async def test_a_mounted_application_is_limited(mode: str, limiter: Limiter) -> None:
    inner = sdk_app(streamable_http_path="/")

    @asynccontextmanager
    async def lifespan(_: Any) -> Any:
        async with inner.router.lifespan_context(inner):  # type: ignore[attr-defined]
            yield

    outer = Starlette(routes=[Mount("/mcp", MCPRateLimit(inner, tools={"search": "1/m"}))], lifespan=lifespan)
    async with serve(outer) as url, connected(f"{url}/", mode) as (client, _):
        assert await outcomes(client, 2) == ["answered", "denied"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_an_answer_that_streams_passes_through(mode: str, limiter: Limiter) -> None:
    server = fastmcp.FastMCP("streams")

    @server.tool
    async def count(ctx: fastmcp.Context) -> str:
        for step in range(3):
            await ctx.report_progress(step, 3)
        return "done"

    steps: list[float] = []

    async def progress(step: float, total: float | None, message: str | None) -> None:
        steps.append(step)

    async with serve(MCPRateLimit(server.http_app())) as url, connected(url, mode) as (client, _):
        result = await client.call_tool("count", progress_callback=progress)
        assert result.content[0].text == "done"  # type: ignore[union-attr]
    assert steps == [0, 1, 2]


# The headers of 2026-07-28


@every_app
async def test_clients_of_the_newest_protocol_are_limited_by_their_headers(make_app: Any, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(make_app(), tools={"search": "3/m"}, global_limit="4/m", trust_headers=True, max_body=1)
    async with serve(wrapped) as url, connected(url, "2026-07-28") as (client, _):
        assert await outcomes(client, 4) == ["answered"] * 3 + ["denied"]
        assert await outcomes(client, 2, "other") == ["answered", "denied"]


@every_app
@pytest.mark.parametrize(
    "headers",
    [
        {"mcp-name": "other"},
        {"mcp-method": "ping"},
        {"mcp-method": "tools/list"},
        {"mcp-method": "server/discover", "mcp-name": ""},
        {"mcp-name": "=?base64?b3RoZXI=?="},
    ],
    ids=str,
)
async def test_the_servers_refuse_headers_that_differ_from_the_body(
    make_app: Any, headers: Any, limiter: Limiter
) -> None:
    """Which is what `trust_headers` stands on."""
    wrapped = MCPRateLimit(make_app(), tools={"search": "0/m"}, trust_headers=True)
    async with serve(wrapped) as url, httpx2.AsyncClient() as http:
        lied = await http.post(url, **modern_call(**headers))
        honest = await http.post(url, **modern_call())
    assert (lied.status_code, lied.json()["error"]["code"]) == (400, -32020)
    assert (honest.status_code, honest.json()["id"]) == (429, 9)


@every_app
async def test_an_older_client_is_limited_by_its_body(make_app: Any, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(make_app(), tools={"search": "2/m"}, trust_headers=True)
    async with serve(wrapped) as url, connected(url, "legacy") as (client, _):
        assert await outcomes(client, 3) == ["answered"] * 2 + ["denied"]


@pytest.mark.parametrize("kind", ["sdk", "fastmcp"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("trust_headers", [True, False])
async def test_a_tools_events_reach_the_client_while_it_runs(
    kind: str, mode: str, trust_headers: bool, limiter: Limiter
) -> None:
    heard = asyncio.Event()

    async def count(ctx: Any) -> str:
        await ctx.report_progress(1, 2)
        await heard.wait()  # for ever, if the event were kept until the tool has ended
        return "done"

    if kind == "sdk":
        count.__annotations__["ctx"] = Context
        server: Any = MCPServer("streams")
        app: Any = server.streamable_http_app
    else:
        count.__annotations__["ctx"] = fastmcp.Context
        server = fastmcp.FastMCP("streams")
        app = server.http_app
    server.tool()(count)

    async def progress(step: float, total: float | None, message: str | None) -> None:
        heard.set()

    with isolated(headers="ietf"):
        wrapped = MCPRateLimit(app(), tools={"count": "9/m"}, trust_headers=trust_headers)
        async with serve(wrapped) as url, connected(url, mode) as (client, _):
            result = await client.call_tool("count", progress_callback=progress)
    assert result.content[0].text == "done"  # type: ignore[union-attr]


@every_app
@every_mode
async def test_a_client_that_waits_as_long_as_told_is_answered(
    make_app: Any, mode: str, limiter: Limiter, fake_clock: FakeClock
) -> None:
    fake_clock.advance(12.25)
    async with serve(MCPRateLimit(make_app(), tools={"search": "1/m"})) as url, connected(url, mode) as (client, _):
        await outcome(client)
        error = await outcome(client)
        assert isinstance(error, MCPError)
        assert error.data["retry_after"] == 48
        fake_clock.advance(error.data["retry_after_ms"] / 1000 - 0.001)
        assert await outcomes(client, 1) == ["denied"]
        fake_clock.advance(0.001)
        assert await outcomes(client, 1) == ["answered"]
