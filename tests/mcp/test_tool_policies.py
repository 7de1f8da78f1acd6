"""Rules and policies inside tools, by the decorator."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import Client, MCPError
from mcp.server.mcpserver import MCPServer

from ratelimit import ConfigurationError, Limiter, MemoryStore, Policy, Rate, Rule
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import FakeClock, isolated
from ratelimit_mcp import MCPRateLimit, MCPRateLimitExceeded, mcp_ratelimit
from tests.mcp.served import connected, outcome, outcomes, serve
from tests.wire import CountingProxy

POLICY = Policy(
    Rule("help", action="skip", match={"tool": "help"}),
    Rule("projects", "2/m", by=("user_or_ip", "project"), match={"method": "tools/call"}),
    Rule("watched", "1/m", action="log"),
)


def limited(*names: str, rule: Any = POLICY, is_async: bool = True, **options: Any) -> MCPServer:
    """A server of tools with an argument `project`, limited by one decorator."""
    server = MCPServer("s")
    limit = mcp_ratelimit(rule, **options)

    def tool(name: str) -> Any:
        async def answer(project: str = "") -> str:
            return "done"

        def answer_sync(project: str = "") -> str:
            return "done"

        function: Any = answer if is_async else answer_sync
        function.__name__ = name
        return limit(function)

    for name in names:
        server.tool(name)(tool(name))
    return server


def by_project(project: str = "") -> dict[str, Any]:
    return {"project": project}


async def waits(client: Client, times: int, tool: str, **arguments: Any) -> list[Any]:
    """For each of so many calls None, or the wait that its denial tells."""
    found = [await outcome(client, tool, **arguments) for _ in range(times)]
    return [one.data["retry_after"] if isinstance(one, MCPError) else None for one in found]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_compound_rule_refuses_each_pair_on_its_own(is_async: bool, limiter: Limiter) -> None:
    server = limited("search", "fetch", "help", is_async=is_async, attributes=by_project)
    async with Client(server) as client:
        assert await waits(client, 2, "search", project="a") == [None, None]
        error = await outcome(client, "fetch", project="a")
        assert isinstance(error, MCPError)
        assert error.data == {"retry_after": 60, "retry_after_ms": 60_000, "limit": 2, "rule": "projects"}
        assert await waits(client, 1, "search", project="b") == [None]
        assert await waits(client, 5, "help", project="a") == [None] * 5
    assert limiter.peek(Rate.parse("2/m"), "stdio&project:a", group="projects").remaining == 0


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_shadow_rule_refuses_nothing(is_async: bool, limiter: Limiter) -> None:
    shadow = Rule("shadow", "1/m", by=("ip", "tool"), action="log", ban_for=900)
    async with Client(limited("search", rule=shadow, is_async=is_async)) as client:
        assert await outcomes(client, 4) == ["answered"] * 4
    assert limiter.peek(shadow, "stdio", attributes={"tool": "search"}).shadow_denials == ("shadow",)


async def test_a_skipped_tool_touches_no_store(fake_clock: FakeClock) -> None:
    store = MemoryStore()
    with isolated(store, fake_clock):
        async with Client(limited("help", rule=Policy(POLICY, Rule("closed", "0/m")))) as client:
            assert await outcomes(client, 5, "help") == ["answered"] * 5
    assert len(store) == 0


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_ban_is_answered_with_its_wait_and_outlives_the_window(
    is_async: bool, limiter: Limiter, fake_clock: FakeClock
) -> None:
    async with Client(limited("search", rule=Rule("flood", "2/m", ban_for=900), is_async=is_async)) as client:
        assert await waits(client, 4, "search") == [None, None, 900, 900]
        fake_clock.advance(899)
        assert await waits(client, 1, "search") == [1]
        fake_clock.advance(1)
        assert await waits(client, 1, "search") == [None]


async def test_the_tools_name_may_be_given(limiter: Limiter) -> None:
    rule = Rule("tools", "1/m", by="tool")

    @mcp_ratelimit(rate=rule, tool="translate")
    async def first() -> str:
        return "done"

    @mcp_ratelimit(rate=lambda: rule, tool="translate")
    async def second() -> str:
        return "done"

    assert await first() == "done"
    with pytest.raises(MCPRateLimitExceeded) as caught:
        await second()
    assert caught.value.decision.key == "tool:translate"


async def test_no_argument_overrules_which_tool_it_is(limiter: Limiter) -> None:
    told = {"tool": "help", "method": "prompts/get"}
    async with Client(limited("search", attributes=lambda project="": told)) as client:
        assert await outcomes(client, 3) == ["answered", "answered", "denied"]


async def test_over_http_the_wrappers_caller_is_counted(limiter: Limiter) -> None:
    server = limited("search", rule=Rule("users", "2/m", by=("user", "tool")))
    wrapped = MCPRateLimit(server.streamable_http_app(), caller=lambda scope: "42")
    async with serve(wrapped) as url, connected(url) as (client, _):
        assert await outcomes(client, 3) == ["answered", "answered", "denied"]
    assert limiter.peek(Rate.parse("2/m"), "user:42&tool:search", group="users").remaining == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"key": "ip"}, "key='ip' has no effect on 'help, projects, watched'"),
        ({"key": lambda: "k"}, "has no effect on"),
        ({"attributes": "project"}, "attributes 'project' is neither"),
    ],
)
def test_mistakes_are_told_at_decoration(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        mcp_ratelimit(POLICY, **options)


async def test_one_round_trip_for_a_whole_policy(proxy: CountingProxy) -> None:
    limiter = Limiter(RedisStore(proxy.url, timeout=30))

    @mcp_ratelimit(Policy(POLICY, Rule("all", "50/m; 80/h", by="global", ban_for=60)), limiter=limiter)
    async def search() -> str:
        return "done"

    await search()
    proxy.reset()
    assert await search() == "done"
    with pytest.raises(MCPRateLimitExceeded):
        await search()
    assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 2}, 2)
    await limiter.aclose()
