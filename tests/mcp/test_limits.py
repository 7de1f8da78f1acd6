"""Which calls spend which budget, and mistakes in the map of tools."""

from __future__ import annotations

from typing import Any

import pytest

from ratelimit import ConfigurationError, Limiter, Rate, RateLimits
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import FakeClock, isolated
from ratelimit_mcp import MCPRateLimit
from tests.mcp.asgi import ToolRunner, send_request, statuses, tool_call
from tests.wire import CountingProxy

CALLER = "ip:203.0.113.7"
KINDS = ("tools", "prompts", "resources", "methods")
NO_MAPS: list[tuple[object, str]] = [(["a"], r"\['a'\]"), ("a", "'a'"), ([], r"\[\]"), (3, "3")]


async def test_of_101_calls_exactly_100_pass_the_global_cap(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner())
    assert await statuses(wrapped, 101) == [200] * 100 + [429]
    assert len(app.ran) == 100


async def test_every_tool_has_its_own_limit_and_all_share_the_cap(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "2/m", "fetch": Rate.parse("3/m")}, global_limit="6/m")
    assert await statuses(wrapped, 3, tool_call("search")) == [200, 200, 429]
    assert await statuses(wrapped, 4, tool_call("fetch")) == [200, 200, 200, 429]
    assert await statuses(wrapped, 2, tool_call("other")) == [200, 429]


async def test_a_call_that_its_tool_refuses_spends_nothing_of_the_cap(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "1/m"}, global_limit="3/m")
    assert await statuses(wrapped, 20) == [200] + [429] * 19
    assert await statuses(wrapped, 3, tool_call("other")) == [200, 200, 429]


async def test_a_call_that_the_cap_refuses_spends_nothing_of_its_tool(limiter: Limiter, fake_clock: FakeClock) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "5/h"}, global_limit="2/m")
    assert await statuses(wrapped, 9) == [200, 200] + [429] * 7
    fake_clock.advance(60)
    assert await statuses(wrapped, 3) == [200, 200, 429]
    fake_clock.advance(60)
    assert await statuses(wrapped, 3) == [200, 429, 429]


async def test_a_category_is_one_budget_wherever_it_is_named(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"ask": "AI_QUERY", "summarise": RateLimits.AI_QUERY})
    assert limiter.check("AI_QUERY", CALLER, cost=17)
    assert await statuses(wrapped, 2, tool_call("ask")) == [200, 200]
    assert await statuses(wrapped, 2, tool_call("summarise")) == [200, 429]
    assert await statuses(wrapped, 1, tool_call("ask")) == [429]
    assert not limiter.peek("AI_QUERY", CALLER)


async def test_a_rate_is_a_budget_under_the_tools_name(limiter: Limiter) -> None:
    await statuses(MCPRateLimit(ToolRunner(), tools={"search": "5/m"}), 2)
    assert limiter.peek(Rate.parse("5/m"), CALLER, group="mcp:search").remaining == 3
    assert limiter.peek("MCP_GLOBAL", CALLER).remaining == 98


async def test_a_tool_in_the_category_of_the_cap_is_counted_once(limiter: Limiter) -> None:
    await statuses(MCPRateLimit(ToolRunner(), tools={"search": "MCP_GLOBAL"}), 3)
    assert limiter.peek("MCP_GLOBAL", CALLER).remaining == 97


async def test_without_a_cap_other_tools_are_free_and_cost_no_store_access(
    limiter: Limiter, proxy: CountingProxy
) -> None:
    redis = Limiter(RedisStore(proxy.url, timeout=10))
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "1/m"}, global_limit=None, limiter=redis)
    assert await statuses(wrapped, 2) == [200, 429]
    proxy.reset()
    assert await statuses(wrapped, 200, tool_call("other")) == [200] * 200
    assert proxy.round_trips == 0
    await redis.aclose()


async def test_cap_and_tool_cost_one_round_trip_together(proxy: CountingProxy) -> None:
    redis = Limiter(RedisStore(proxy.url, timeout=10))
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "50/m"}, limiter=redis)
    await statuses(wrapped, 1)
    proxy.reset()
    await statuses(wrapped, 1)
    assert proxy.counts == {"EVALSHA": 1}
    assert proxy.round_trips == 1
    await redis.aclose()


@pytest.mark.parametrize(
    "method",
    ["server/discover", "initialize", "notifications/initialized", "notifications/cancelled", "ping", "tools/list"],
)
async def test_what_clients_send_around_their_calls_is_exempt(method: str, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), global_limit="1/m")
    assert await statuses(wrapped, 5, tool_call(method=method)) == [200] * 5
    assert await statuses(wrapped, 2) == [200, 429]
    assert await statuses(wrapped, 5, tool_call(method=method)) == [200] * 5


@pytest.mark.parametrize(
    "method", ["resources/read", "prompts/get", "completion/complete", "tools/call", "Tools/List", "notifications", "x"]
)
async def test_every_other_method_counts(method: str, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), global_limit="1/m", tools={"search": "9/m"})
    assert await statuses(wrapped, 2, tool_call(method=method)) == [200, 429]


async def test_exempt_methods_are_a_choice_but_connecting_never_counts(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), global_limit="1/m", exempt=["prompts/*", "completion/complete"])
    for method in ("prompts/get", "prompts/list", "completion/complete", "server/discover", "initialize"):
        assert await statuses(wrapped, 2, tool_call(method=method)) == [200, 200]
    assert await statuses(wrapped, 2, tool_call(method="ping")) == [200, 429]


async def test_only_a_tools_call_spends_the_tools_budget(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "1/m"})
    assert await statuses(wrapped, 3, tool_call("search", method="prompts/get")) == [200] * 3
    assert await statuses(wrapped, 2, tool_call("search")) == [200, 429]


async def test_a_call_sent_as_a_notification_counts(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"search": "1/m"})
    silent = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "search"}}
    assert await statuses(wrapped, 2, silent) == [200, 429]
    assert app.ran == ["search"]


async def test_overrides_and_switching_off_take_effect_at_the_next_call() -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"ask": "AI_QUERY"})
    with isolated(overrides={"AI_QUERY": "1/m"}):
        assert await statuses(wrapped, 2, tool_call("ask")) == [200, 429]
    with isolated(disable=True):
        assert await statuses(wrapped, 150, tool_call("ask")) == [200] * 150
    with isolated():
        assert await statuses(wrapped, 21, tool_call("ask")) == [200] * 20 + [429]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tools": {"search": "AI_QUERRY"}}, r"tools\['search'\]: .*AI_QUERRY.*AI_QUERY"),
        ({"tools": {"search": "10/x"}}, r"tools\['search'\]: .*10/x"),
        ({"tools": {"search": "10 per minute"}}, r"tools\['search'\]: .*10 per minute"),
        ({"tools": {"search": 10}}, r"tools\['search'\]: .*10"),
        ({"tools": {"search": None}}, r"tools\['search'\]: .*None"),
        ({"tools": {"": "10/m"}}, "''"),
        ({"tools": {3: "10/m"}}, "3"),
        ({"global_limit": "MCP"}, "global_limit: .*'MCP'.*MCP_GLOBAL"),
        ({"global_limit": "100"}, "global_limit: .*100"),
        *(({name: value}, f"^{name}=.*{text}") for name in KINDS for value, text in NO_MAPS),
        ({"exempt": "ping"}, "'ping'"),
        ({"exempt": ["*"]}, r"'\*'"),
        ({"exempt": ["/*"]}, r"'/\*'"),
        ({"exempt": [""]}, "''"),
        ({"exempt": [3]}, "3"),
        ({"exempt": ["tools/call"]}, "tools/call"),
        ({"exempt": ["tools/*"]}, r"tools/\*"),
        ({"error_code": -32000}, "-32000"),
        ({"error_code": -32768}, "-32768"),
        ({"error_code": "429"}, "'429'"),
        ({"error_code": True}, "True"),
        ({"caller": "user"}, "'user'"),
        ({"caller": send_request}, "send_request"),
    ],
)
def test_mistakes_are_told_when_the_wrapper_is_made(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        MCPRateLimit(ToolRunner(), **options)


async def test_the_map_is_read_when_the_wrapper_is_made(limiter: Limiter) -> None:
    tools = {"search": "1/m"}
    wrapped = MCPRateLimit(ToolRunner(), tools=tools)
    tools.clear()
    assert await statuses(wrapped, 2) == [200, 429]


async def test_a_store_that_fails_is_the_outage_policys_business(limiter: Limiter) -> None:
    class Broken:
        holds = frozenset({"fixed"})

        def counter(self, *_: Any) -> None: ...

        async def aapply(self, *_: Any) -> Any:
            raise OSError("no store")

    for fail_open, expected in ((True, 200), (False, 429)):
        with isolated(Broken(), fail_open=fail_open):  # type: ignore[arg-type]
            assert (await send_request(MCPRateLimit(ToolRunner()), tool_call())).status == expected
