"""Limits on prompts, resources and methods, by name and by pattern."""

from __future__ import annotations

from typing import Any

import pytest

from ratelimit import ConfigurationError, Limiter, MemoryStore, Policy, Rate, Rule
from ratelimit.testing import isolated
from ratelimit_mcp import Limit, MCPRateLimit
from ratelimit_mcp.names import MAX_NAMES, NameMap
from tests.mcp.asgi import ToolRunner, statuses, tool_call

CALLER = "ip:203.0.113.7"


def call(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def read(uri: str) -> dict[str, Any]:
    return call("resources/read", uri=uri)


def prompt(name: str) -> dict[str, Any]:
    return call("prompts/get", name=name)


async def test_a_prompt_has_a_budget_of_its_own_within_the_cap(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), prompts={"write": "2/m"}, tools={"write": "9/m"}, global_limit="4/m")
    assert await statuses(wrapped, 3, prompt("write")) == [200, 200, 429]
    assert await statuses(wrapped, 1, tool_call("write")) == [200]
    assert await statuses(wrapped, 2, prompt("other")) == [200, 429]
    assert limiter.peek(Rate.parse("2/m"), CALLER, group="mcp-prompt:write").remaining == 0
    assert limiter.peek(Rate.parse("9/m"), CALLER, group="mcp:write").remaining == 8


async def test_a_resource_is_limited_by_its_uri_whether_read_or_subscribed_to(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), resources={"docs://readme": "3/m"})
    assert await statuses(wrapped, 2, read("docs://readme")) == [200, 200]
    assert await statuses(wrapped, 2, call("resources/subscribe", uri="docs://readme")) == [200, 429]
    assert await statuses(wrapped, 5, call("resources/unsubscribe", uri="docs://readme")) == [200] * 5
    assert await statuses(wrapped, 5, read("docs://other")) == [200] * 5


async def test_all_that_a_pattern_means_share_its_budget(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), resources={"docs://*": "2/m"}, tools={"admin_*": "2/m"}, prompts={"*": "1/m"})
    assert [await statuses(wrapped, 1, read(f"docs://{n}")) for n in range(3)] == [[200], [200], [429]]
    assert [await statuses(wrapped, 1, tool_call(f"admin_{n}")) for n in range(3)] == [[200], [200], [429]]
    assert [await statuses(wrapped, 1, prompt(name)) for name in "ab"] == [[200], [429]]
    assert await statuses(wrapped, 1, tool_call("admin")) == [200]


async def test_methods_have_limits_too_exempt_ones_among_them(limiter: Limiter) -> None:
    limits: Any = {"completion/complete": "2/m", "prompts/list": "1/m", "initialize": "1/m", "resources/*": "2/m"}
    wrapped = MCPRateLimit(ToolRunner(), methods=limits, global_limit="6/m")
    assert await statuses(wrapped, 3, call("completion/complete")) == [200, 200, 429]
    assert await statuses(wrapped, 2, call("prompts/list")) == [200, 429]
    assert await statuses(wrapped, 2, call("initialize")) == [200, 429]
    assert await statuses(wrapped, 3, read("x://y")) == [200, 200, 429]
    assert limiter.peek(Rate.parse("6/m"), CALLER, group="mcp").remaining == 2


async def test_name_method_and_cap_hold_together(limiter: Limiter) -> None:
    options: Any = {"tools": {"search": "3/m"}, "methods": {"tools/call": "2/m"}, "global_limit": "9/m"}
    wrapped = MCPRateLimit(ToolRunner(), **options)
    assert await statuses(wrapped, 5) == [200, 200, 429, 429, 429]
    for rate, group, left in (("3/m", "mcp:search", 1), ("2/m", "mcp-method:tools/call", 0), ("9/m", "mcp", 7)):
        assert limiter.peek(Rate.parse(rate), CALLER, group=group).remaining == left


async def test_the_lists_are_exempt_unless_the_application_says_otherwise(limiter: Limiter) -> None:
    lists = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
    wrapped = MCPRateLimit(ToolRunner(), global_limit="1/m")
    assert [await statuses(wrapped, 2, call(method)) for method in lists] == [[200, 200]] * 4
    counted = MCPRateLimit(ToolRunner(), global_limit="1/m", exempt=())
    assert [await statuses(counted, 1, call(method)) for method in lists] == [[200], [429], [429], [429]]


async def test_rules_see_prompts_and_resources_by_name(limiter: Limiter) -> None:
    cap = Policy(
        Rule("prompts", "1/m", by=("ip", "prompt"), match={"method": "prompts/get"}),
        Rule("secret", "1/m", by="ip", match={"resource": "docs://secret"}),
    )
    wrapped = MCPRateLimit(ToolRunner(), global_limit=cap)
    assert [await statuses(wrapped, 2, prompt(name)) for name in "ab"] == [[200, 429]] * 2
    assert await statuses(wrapped, 2, read("docs://secret")) == [200, 429]
    assert await statuses(wrapped, 5, read("docs://open")) == [200] * 5
    assert await statuses(wrapped, 5, tool_call("docs://secret")) == [200] * 5


@pytest.mark.parametrize(
    ("key", "uris", "others"),
    [
        ("docs://a", ["docs://a", "docs://%61", "docs://a?x=1", "docs://a#f", "docs://a\n"], ["docs://A", "docs://ab"]),
        ("w://{city}/now", ["w://oslo/now", "w://a%2Fb/now", "w://oslo/now?x", "w:///now"], ["w://a/b/now", "w://a"]),
        ("f://{path*}", ["f://a", "f://a/b/c", "f://"], ["g://a"]),
        ("f://{+path}/x", ["f://a/b/x"], ["f://a/b"]),
        ("s://find{?q,n}", ["s://find", "s://find?q=1"], ["s://find/1"]),
        ("a.b://*", ["a.b://x"], ["axb://x"]),
        ("a://x{", ["a://x{"], ["a://x"]),
    ],
)
def test_a_uri_is_found_however_it_is_spelled(key: str, uris: list[str], others: list[str]) -> None:
    found = NameMap({key: 1}, uris=True)
    assert [found.find(uri) for uri in uris] == [1] * len(uris)
    assert [found.find(uri) for uri in others] == [None] * len(others)


def test_the_exact_name_comes_first_then_the_pattern_with_more_of_its_own() -> None:
    found = NameMap({"*": "any", "ad*": "ad", "admin_*": "admin", "admin_x": "x", "*_x": "end"})
    assert [found.find(name) for name in ("admin_x", "admin_y", "add", "b_x", "c")] == [
        "x",
        "admin",
        "ad",
        "end",
        "any",
    ]
    assert NameMap({"{a}": 1}).find("b") is None


# Names that clients make up


async def test_tools_that_nobody_knows_make_no_keys(limiter: Limiter) -> None:
    store = MemoryStore()
    with isolated(store):
        wrapped = MCPRateLimit(ToolRunner(), tools={"search": "9/m", "ad*": "5000/m"}, global_limit="9000/m")
        for n in range(2000):
            await statuses(wrapped, 1, tool_call(f"adverse{n}"))
    assert len(store) == 2


async def test_where_rules_count_by_tool_the_names_that_are_told_apart_are_bounded(limiter: Limiter) -> None:
    store = MemoryStore()
    by_tool = Policy(Rule("tools", "2/m", by=("ip", "tool")), Rule("last", "0/m", match={"tool": "forbidden"}))
    with isolated(store):
        wrapped = MCPRateLimit(ToolRunner(), tools={"known": "9/m"}, global_limit=by_tool)
        made_up = [await statuses(wrapped, 1, tool_call(f"made-up-{n}")) for n in range(MAX_NAMES + 3)]
        assert made_up == [[200]] * (MAX_NAMES + 2) + [[429]]
        assert len(store) == MAX_NAMES + 1
        assert await statuses(wrapped, 3, tool_call("known")) == [200, 200, 429]
        assert await statuses(wrapped, 1, tool_call("forbidden")) == [429]  # matched by its own name all the same


async def test_methods_that_clients_make_up_are_bounded_alike(limiter: Limiter) -> None:
    store = MemoryStore()
    with isolated(store):
        wrapped = MCPRateLimit(ToolRunner(), global_limit=Rule("methods", "9/m", by=("ip", "method")))
        for n in range(MAX_NAMES + 50):
            await statuses(wrapped, 1, call(f"made/up{n}"))
    assert len(store) <= MAX_NAMES + 1


# Mistakes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"resources": {"docs://*": "5/x"}}, r"resources\['docs://\*'\]: .*5/x"),
        ({"prompts": {"": "5/m"}}, "prompts: '' is not the name of a prompt"),
        ({"methods": {"resources*": "5/m"}}, r"methods: 'resources\*'"),
        ({"methods": {"server/discover": "5/m"}}, "methods: 'server/discover' cannot be refused"),
        ({"methods": {"notifications/x": "5/m"}}, "methods: 'notifications/x' cannot be refused"),
        ({"prompts": {"a": Rule("r", "1/m")}, "global_limit": Rule("r", "2/m")}, r"prompts\['a'\]: rule 'r' is in"),
        ({"global_limit": Limit("9/m", cost=2)}, "global_limit: cost 2"),
        ({"paths": ["mcp"]}, "'mcp'"),
        ({"paths": []}, "paths: name at least one"),
        ({"trust_headers": "no"}, "trust_headers 'no'"),
    ],
)
def test_mistakes_are_told_when_the_wrapper_is_made(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        MCPRateLimit(ToolRunner(), **options)


@pytest.mark.parametrize(
    ("key", "name", "uris", "found"),
    [
        ("*a*b*c*d", "abcabc" * 100_000, False, None),
        ("*a*b*c*d", "abcabc" * 100_000 + "d", False, 1),
        ("x://{a}-{b}-{c}-{d}/end", "x://" + "-" * 600_000, True, None),
        ("x://{a}-{b}-{c}-{d}/end", "x://" + "-" * 600_000 + "/end", True, 1),
        ("x://*-{b}-{c}/end", "x://" + "-/" * 300_000, True, None),
        ("x://*?*#*", "x://" + "?#" * 300_000, True, 1),
    ],
)
def test_no_name_makes_the_search_long(key: str, name: str, uris: bool, found: int | None) -> None:
    assert NameMap({key: 1}, uris=uris).find(name) == found


@pytest.mark.parametrize(
    ("key", "names", "others"),
    [
        ("{a}x{b}/end", ["1xx2/end", "x/end", "1x/end"], ["12/end", "1x2/3/end"]),
        ("{a}x/{b}", ["1xx/2", "x/"], ["1/x/2", "1/2"]),
        ("{a}/*/z", ["1/2/z", "1/2/3/z"], ["1/z", "1/2/y"]),
        ("*x{b}y", ["x/x1y", "xy", "x/y"], ["xz"]),
        ("{a}{b}c", ["c", "xyc"], ["x/c"]),
        ("{a}", ["", "x", "x?y/z"], ["x/y"]),
    ],
)
def test_wildcards_in_a_row_find_what_they_mean(key: str, names: list[str], others: list[str]) -> None:
    found = NameMap({key: 1}, uris=True)
    assert [found.find(name) for name in names] == [1] * len(names)
    assert [found.find(name) for name in others] == [None] * len(others)


async def test_overlong_names_count_as_one(limiter: Limiter) -> None:
    store = MemoryStore()
    rules = Policy(Rule("tools", "5/m", by=("ip", "tool")), Rule("uris", "5/m", by=("ip", "resource")))
    with isolated(store):
        wrapped = MCPRateLimit(ToolRunner(), global_limit=rules)
        assert [await statuses(wrapped, 1, tool_call(str(n) * 201)) for n in range(6)] == [[200]] * 5 + [[429]]
    assert len(store) == 2
    with isolated(store := MemoryStore()):
        wrapped = MCPRateLimit(ToolRunner(), global_limit=rules["uris"])
        assert [await statuses(wrapped, 1, read(str(n) * 2001)) for n in range(6)] == [[200]] * 5 + [[429]]
        assert [await statuses(wrapped, 1, read(str(n) * 2000)) for n in range(6)] == [[200]] * 6
    assert len(store) == 7


async def test_a_limit_by_name_holds_where_its_method_is_exempt_from_the_cap(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), prompts={"write": "1/m"}, exempt=["prompts/*"], global_limit="1/m")
    assert await statuses(wrapped, 2, prompt("write")) == [200, 429]
    assert await statuses(wrapped, 3, prompt("other")) == [200] * 3
    assert await statuses(wrapped, 2) == [200, 429]
