"""Rules and policies in the wrapper: what they may look at, what they refuse, and what they leave as it is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ratelimit import ConfigurationError, Identity, Limiter, MemoryStore, Policy, Rate, Rule
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import FakeClock, isolated
from ratelimit_mcp import MCPRateLimit, check_mcp_rate_limit, check_mcp_rate_limit_sync
from tests.mcp.asgi import ToolRunner, send_request, statuses, tool_call
from tests.wire import CountingProxy

HERE = "ip:203.0.113.7"
POLICY = Policy(
    Rule("help", action="skip", match={"tool": "help"}),
    Rule("tools", "2/m", by=("ip", "tool"), match={"method": "tools/call"}),
    Rule("watched", "1/m", by="ip", action="log"),
)


async def test_a_compound_rule_refuses_each_pair_on_its_own(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), global_limit=POLICY)
    assert await statuses(wrapped, 3, tool_call("search")) == [200, 200, 429]
    assert await statuses(wrapped, 3, tool_call("fetch")) == [200, 200, 429]
    assert await statuses(wrapped, 1, tool_call("search"), client=("198.51.100.9", 1)) == [200]
    assert await statuses(wrapped, 9, tool_call(method="prompts/get")) == [200] * 9
    assert app.ran == ["search", "search", "fetch", "fetch", "search"]
    assert limiter.peek(Rate.parse("2/m"), f"{HERE}&tool:search", group="tools").remaining == 0


async def test_a_denial_names_the_rule_its_limit_and_wait(limiter: Limiter, fake_clock: FakeClock) -> None:
    wrapped = MCPRateLimit(ToolRunner(), global_limit=POLICY)
    await statuses(wrapped, 2)
    fake_clock.advance(20.5)
    response = await send_request(wrapped, tool_call(request_id=7))
    assert (response.status, response.headers["retry-after"], response.json["id"]) == (429, "40", 7)
    assert response.json["error"]["data"] == {"retry_after": 40, "retry_after_ms": 39_500, "limit": 2, "rule": "tools"}


async def test_a_tools_rule_and_the_cap_hold_together(limiter: Limiter) -> None:
    rule = Rule("search", "2/m", by="global")
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": rule, "find": rule}, global_limit="5/m")
    assert await statuses(wrapped, 1, tool_call("search")) == [200]
    assert await statuses(wrapped, 2, tool_call("find"), client=("198.51.100.9", 1)) == [200, 429]
    assert await statuses(wrapped, 5, tool_call("other")) == [200] * 4 + [429]
    assert limiter.peek(rule, Identity()).remaining == 0


async def test_a_policy_of_a_tool_looks_at_the_tool_too(limiter: Limiter) -> None:
    policy = Policy(
        Rule("asking", "1/m", match={"tool": re.compile("^ask")}),
        Rule("either", "2/m", match={"tool": ["ask", "sum"]}, by=("ip", "method")),
    )
    wrapped = MCPRateLimit(ToolRunner(), tools={"ask": policy, "sum": policy}, global_limit=None)
    assert await statuses(wrapped, 2, tool_call("ask")) == [200, 429]
    assert await statuses(wrapped, 2, tool_call("sum")) == [200, 429]
    assert await statuses(wrapped, 9, tool_call("ask", method="prompts/get")) == [200] * 9


@pytest.mark.parametrize("style", ["none", "ietf", "x"])
async def test_a_shadow_rule_refuses_nothing_and_leaves_the_answer_as_it_is(style: str, fake_clock: FakeClock) -> None:
    shadow = Rule("shadow", "1/m", action="log", ban_for=900)
    with isolated(clock=fake_clock, headers=style) as limiter:
        plain = await send_request(ToolRunner(), tool_call())
        wrapped = MCPRateLimit(ToolRunner(), global_limit=shadow)
        assert [(await send_request(wrapped, tool_call())).messages for _ in range(4)] == [plain.messages] * 4
        assert limiter.peek(shadow, HERE).shadow_denials == ("shadow",)


@pytest.mark.parametrize("style", ["ietf", "x"])
async def test_a_skipped_tool_touches_neither_store_nor_answer(style: str, fake_clock: FakeClock) -> None:
    store = MemoryStore()
    with isolated(store, fake_clock, headers=style):
        wrapped = MCPRateLimit(ToolRunner(), global_limit=Policy(POLICY, Rule("closed", "0/m")))
        plain = await send_request(ToolRunner(), tool_call("help"))
        assert [(await send_request(wrapped, tool_call("help"))).messages for _ in range(5)] == [plain.messages] * 5
        assert len(store) == 0
        assert await statuses(wrapped, 1, tool_call("search")) == [429]


async def test_what_a_tools_policy_skips_the_cap_still_counts(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"help": POLICY}, global_limit="3/m")
    assert await statuses(wrapped, 4, tool_call("help")) == [200] * 3 + [429]


async def test_a_ban_is_answered_with_its_wait_and_outlives_the_window(limiter: Limiter, fake_clock: FakeClock) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": Rule("flood", "2/m", ban_for=900)})
    responses = [await send_request(wrapped, tool_call()) for _ in range(4)]
    assert [response.headers.get("retry-after") for response in responses] == [None, None, "900", "900"]
    fake_clock.advance(899)
    assert (await send_request(wrapped, tool_call())).json["error"]["data"]["retry_after"] == 1
    fake_clock.advance(1)
    assert await statuses(wrapped, 1) == [200]


async def test_an_attribute_of_the_caller_can_be_counted_by(limiter: Limiter) -> None:
    def caller(scope: Any) -> Identity:
        return Identity(user="7", attributes={"device": scope["device"], "tool": "help"})

    rule = Rule("devices", "2/h", by="user", count_distinct="device", match={"tool": "search"})
    wrapped = MCPRateLimit(ToolRunner(), global_limit=rule, caller=caller)
    found = [await statuses(wrapped, 2, device=device) for device in "abca"]
    assert found == [[200, 200], [200, 200], [429, 429], [200, 200]]


async def test_a_policy_of_the_file_goes_by_its_name(tmp_path: Any, fake_clock: FakeClock) -> None:
    file = tmp_path / "limits.toml"
    file.write_text('[[mcp.rules]]\nname = "api"\nrate = "1/m"\nby = ["ip", "tool"]\n')
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "mcp", "fetch": "mcp"}, global_limit="mcp")
    with isolated(clock=fake_clock, policy_file=str(file)) as limiter:
        assert await statuses(wrapped, 2, tool_call("search")) == [200, 429]
        assert await statuses(wrapped, 2, tool_call("fetch")) == [200, 429]
        assert not await check_mcp_rate_limit("mcp", tool="search", user=Identity(ip="203.0.113.7"))
        assert limiter.peek(Rate.parse("1/m"), f"{HERE}&tool:fetch", group="api").remaining == 0


# Batches


async def test_a_batch_is_one_decision_on_every_kind_of_call(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), global_limit=POLICY)
    batch = [tool_call("search", 1), tool_call("fetch", 2), tool_call("search", 3), tool_call("help", 4)]
    assert await statuses(wrapped, 2, batch) == [200, 429]
    assert app.ran == ["search", "fetch", "search", "help"]
    assert limiter.peek(Rate.parse("2/m"), f"{HERE}&tool:fetch", group="tools").remaining == 1
    assert await statuses(wrapped, 1, [tool_call("fetch", 1), tool_call("help", 2)]) == [200]


async def test_calls_of_different_tools_spend_a_common_rule_together(limiter: Limiter) -> None:
    rule = Rule("all", "3/m", by="ip")
    wrapped = MCPRateLimit(ToolRunner(), global_limit=rule)
    assert await statuses(wrapped, 2, [tool_call("a"), tool_call("b")]) == [200, 429]
    assert limiter.peek(rule, Identity(ip="203.0.113.7")).remaining == 1


async def test_a_batch_of_too_many_kinds_is_refused_before_it_is_counted(limiter: Limiter) -> None:
    rule = Rule("tools", "9/m", by=("ip", "tool"))
    wrapped = MCPRateLimit(app := ToolRunner(), global_limit=rule)
    response = await send_request(wrapped, [tool_call(f"tool{n}", n) for n in range(101)])
    assert (response.status, response.json["id"], response.json["error"]["code"]) == (400, None, -32600)
    assert response.json["error"]["message"] == "Invalid request: more than 100 different calls in a batch"
    assert app.ran == []
    assert await statuses(wrapped, 1, [tool_call(f"tool{n % 100}", n) for n in range(900)]) == [200]
    assert await statuses(
        MCPRateLimit(ToolRunner(), global_limit="200/m"), 1, [tool_call(f"t{n}") for n in range(150)]
    ) == [200]


# Inside a tool


async def test_the_check_knows_the_tool_and_tells_the_key(limiter: Limiter) -> None:
    someone = Identity(ip="203.0.113.7")
    decisions = [await check_mcp_rate_limit(POLICY, tool="search", user=someone) for _ in range(3)]
    assert [(decision.allowed, decision.rule) for decision in decisions] == [(True, "tools")] * 2 + [(False, "tools")]
    assert decisions[0].key == f"{HERE}&tool:search"
    assert check_mcp_rate_limit_sync(POLICY, tool="fetch", user=someone)
    assert check_mcp_rate_limit_sync(POLICY, tool="help", user=someone).counted is False


async def test_the_check_takes_attributes_and_needs_no_tool_for_a_rule(limiter: Limiter) -> None:
    rule = Rule("projects", "1/m", by="project", match={"method": "tools/call"})
    found = [await check_mcp_rate_limit(rule, attributes={"project": project}) for project in "aab"]
    assert [(decision.allowed, decision.key) for decision in found] == [
        (True, "project:a"),
        (False, "project:a"),
        (True, "project:b"),
    ]
    assert not check_mcp_rate_limit_sync(rate=rule, attributes={"project": "b", "method": "x"})


# Mistakes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"tools": {"search": POLICY}, "global_limit": POLICY["tools"]},
            r"tools\['search'\]: rule 'tools' is in global",
        ),
        (
            {"tools": {"search": Rule("watched", "9/m")}, "global_limit": POLICY},
            r"rule 'watched' is in global_limit, too",
        ),
        ({"global_limit": [POLICY]}, r"global_limit: .*Policy"),
        ({"tools": {"search": Rule}}, r"tools\['search'\]: .*Rule"),
    ],
)
def test_mistakes_are_told_when_the_wrapper_is_made(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        MCPRateLimit(ToolRunner(), **options)


async def test_the_caps_own_policy_on_a_tool_is_counted_once(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": POLICY}, global_limit=Policy(*POLICY))
    assert await statuses(wrapped, 3) == [200, 200, 429]


@pytest.mark.parametrize("check", [check_mcp_rate_limit, check_mcp_rate_limit_sync])
async def test_a_key_beside_a_policy_is_an_error(check: Any, limiter: Limiter) -> None:
    with pytest.raises(ConfigurationError, match="key='ip' has no effect on 'help, tools, watched'"):
        await check(POLICY, key="ip", tool="search")


async def test_one_round_trip_for_policies_of_tool_and_cap(proxy: CountingProxy) -> None:
    limiter = Limiter(RedisStore(proxy.url, timeout=30))
    tool = Policy(Rule("pair", "40/m", by=("ip", "tool")), Rule("shadow", "1/m", by="ip", action="log"))
    cap = Policy(Rule("everybody", "90/m", by="global"), Rule("address", "50/m; 80/h", by="ip", ban_for=60))
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": tool}, global_limit=cap, limiter=limiter)
    await statuses(wrapped, 1)
    proxy.reset()
    assert await statuses(wrapped, 3) == [200] * 3
    assert await statuses(wrapped, 2, [tool_call("search", 1), tool_call("other", 2)]) == [200] * 2
    assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 5}, 5)
    proxy.reset()
    skipped = Policy(Rule("off", action="skip", match={"tool": "search"}), Rule("rest", "9/m"))
    assert await statuses(MCPRateLimit(ToolRunner(), global_limit=skipped, limiter=limiter), 20) == [200] * 20
    assert proxy.round_trips == 0
    await limiter.aclose()
