"""The headers of 2026-07-28: read instead of the body only where the application refuses headers that lie."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest

from ratelimit import Limiter, Rate, Rule
from ratelimit_mcp import Limit, MCPRateLimit
from tests.mcp.asgi import JSON, ToolRunner, Wire, chunks, http_scope, send_request, tool_call

CALLER = "ip:203.0.113.7"
Lines = Sequence[tuple[bytes, bytes]]


def modern(method: str = "tools/call", name: str | None = "search", version: str = "2026-07-28") -> list[Any]:
    named = [] if name is None else [(b"mcp-name", name.encode())]
    return [JSON, (b"mcp-protocol-version", version.encode()), (b"mcp-method", method.encode()), *named]


def encoded(name: bytes) -> str:
    return f"=?base64?{base64.b64encode(name).decode()}?="


async def reads(wrapped: MCPRateLimit, headers: Lines, body: Any = None) -> tuple[int, int]:
    """The status of a request, and how often its body was read before the application saw it."""
    wire = Wire(chunks(json.dumps(tool_call() if body is None else body).encode()))
    app, seen = wrapped.app, []

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        seen.append(wire.reads)
        await app(scope, receive, send)

    wrapped.app = counting
    try:
        status = (await send_request(wrapped, b"", http_scope(tuple(headers)), wire=wire)).status
    finally:
        wrapped.app = app
    return status, seen[0] if seen else wire.reads


async def test_a_body_is_not_read_where_the_headers_tell_the_call(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"search": "2/m"}, trust_headers=True)
    assert await reads(wrapped, modern()) == (200, 0)
    assert app.bodies == [json.dumps(tool_call()).encode()]
    assert limiter.peek(Rate.parse("2/m"), CALLER, group="mcp:search").remaining == 1
    assert limiter.peek("MCP_GLOBAL", CALLER).remaining == 99


async def test_a_denial_reads_the_body_for_the_id(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"search": "0/m"}, trust_headers=True)
    response = await send_request(wrapped, tool_call(request_id="x"), http_scope(tuple(modern())))
    assert (response.status, response.json["id"], response.json["error"]["code"], app.ran) == (429, "x", 429, [])


@pytest.mark.parametrize("body", [b"{", b" " * 200, b'{"a":1,"a":2}', b""])
async def test_a_denial_of_an_unreadable_body_has_no_id(body: bytes, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), global_limit="0/m", trust_headers=True, max_body=100)
    response = await send_request(wrapped, body, http_scope(tuple(modern())))
    assert (response.status, response.json["id"]) == (429, None)


async def test_without_trust_the_body_decides_whatever_the_headers_say(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "1/m"})
    assert await reads(wrapped, modern(name="other")) == (200, 1)
    assert await reads(wrapped, modern("ping", None)) == (429, 1)


EXPORT = tool_call("export")


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([JSON], id="none"),
        pytest.param(modern(version="2025-11-25"), id="a version that does not validate them"),
        pytest.param(modern(version="2027-01-01"), id="a version that is not known"),
        pytest.param([*modern(), (b"mcp-protocol-version", b"2026-07-28")], id="version twice"),
        pytest.param([*modern(), (b"mcp-method", b"ping")], id="method twice"),
        pytest.param([*modern(), (b"Mcp-Name", b"other")], id="name twice, in another case"),
        pytest.param([*modern()[:3], (b"Mcp-Name", b"other")], id="name in capitals, which no server sends"),
        pytest.param([*modern(name="other"), (b"mcp-name", b"other")], id="name twice, the same"),
        pytest.param(modern(name=None), id="no name"),
        pytest.param(modern(name=""), id="an empty name"),
        pytest.param([line for line in modern() if line[0] != b"mcp-method"], id="no method"),
        pytest.param(modern(""), id="an empty method"),
        pytest.param(modern("tools/call, ping"), id="two methods in one line"),
        pytest.param(modern("tools call"), id="a method with a space"),
        pytest.param(modern(name="=?base64?b3RoZXI?="), id="base64 cut off"),
        pytest.param(modern(name="=?base64?b3RoZXJ=?="), id="base64 that is not the only spelling"),
        pytest.param(modern(name="=?base64?b3Ro ZXI=?="), id="base64 with a space"),
        pytest.param(modern(name=encoded(b"\xff")), id="base64 of what is no text"),
        pytest.param(modern(name="öther"), id="a name not in ASCII"),
        pytest.param(modern(name="other\t"), id="a name with a tab"),
        pytest.param(modern("resources/subscribe", "other"), id="a method whose name the headers do not tell"),
    ],
)
async def test_a_header_that_does_not_tell_the_call_skips_no_limit(headers: Lines, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"export": "1/m"}, trust_headers=True)
    assert [await reads(wrapped, headers, EXPORT) for _ in range(2)] == [(200, 1), (429, 1)]
    assert app.ran == ["export"]


@pytest.mark.parametrize(
    ("name", "key"),
    [("é", "é"), (" edge ", " edge "), ("=?base64?x?=", "=?base64?x?="), ("a b", "a b"), ("", "")],
)
async def test_an_encoded_name_is_read_as_it_is_meant(name: str, key: str, limiter: Limiter) -> None:
    tools: Any = {key: "1/m"} if key else None
    wrapped = MCPRateLimit(ToolRunner(), tools=tools, global_limit=None, trust_headers=True)
    headers = modern(name=encoded(name.encode()))
    assert [await reads(wrapped, headers) for _ in range(2)] == [(200, 0), (429, 1) if key else (200, 0)]


async def test_what_depends_on_arguments_needs_the_body(limiter: Limiter) -> None:
    limit = Limit("9/m", cost=lambda name, arguments: len(arguments["text"]))
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": limit, "other": Limit("9/m", cost=2)}, trust_headers=True)
    body = {**tool_call(), "params": {"name": "search", "arguments": {"text": "12345"}}}
    assert [await reads(wrapped, modern(), body) for _ in range(2)] == [(200, 1), (429, 1)]
    assert await reads(wrapped, modern(name="other"), tool_call("other")) == (200, 0)


async def test_prompts_resources_and_rules_go_by_the_headers_too(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(
        ToolRunner(),
        prompts={"write": "1/m"},
        resources={"docs://*": "1/m"},
        methods={"completion/complete": "1/m"},
        global_limit=Rule("tools", "1/m", by=("ip", "tool"), match={"method": "tools/call"}),
        trust_headers=True,
    )
    for method, name in (
        ("prompts/get", "write"),
        ("resources/read", "docs://x"),
        ("tools/call", "a"),
        ("tools/call", "b"),
        ("completion/complete", None),
    ):
        found = [await reads(wrapped, modern(method, name), tool_call(method=method)) for _ in range(2)]
        assert found == [(200, 0), (429, 1)]


async def test_exempt_methods_go_unread_and_uncounted(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), global_limit="0/m", trust_headers=True)
    for method in ("server/discover", "ping", "tools/list"):
        assert await reads(wrapped, modern(method, None), tool_call(method=method)) == (200, 0)
