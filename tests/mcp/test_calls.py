"""Finding the calls in a body: the same ones that the application's parser will find."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ratelimit import Limiter
from ratelimit_mcp import MCPRateLimit
from ratelimit_mcp.calls import RpcCall, parse_body
from ratelimit_mcp.refusal import RefusalError
from tests.mcp.asgi import JSON, ToolRunner, http_scope, send_request, statuses, tool_call


def tools(body: Any) -> list[str | None]:
    return [call.name for call in parse_body(json.dumps(body).encode()).calls]


def test_a_call_is_its_method_its_id_and_its_tool() -> None:
    assert parse_body(json.dumps(tool_call("search", 7)).encode()).calls == [RpcCall("tools/call", 7, True, "search")]
    notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert parse_body(json.dumps(notification).encode()).calls == [RpcCall("notifications/initialized", None, False)]


@pytest.mark.parametrize("request_id", [1, 0, -5, 10**30, "a", "", "é", "\ud800", None])
def test_an_id_is_kept_as_it_came(request_id: Any) -> None:
    (call,) = parse_body(json.dumps(tool_call(request_id=request_id)).encode()).calls
    assert call.id == request_id
    assert type(call.id) is type(request_id)


@pytest.mark.parametrize("request_id", [True, 1.5, [1], {"a": 1}, float("nan")])
def test_an_id_of_another_kind_is_not_echoed(request_id: Any) -> None:
    (call,) = parse_body(json.dumps(tool_call(request_id=request_id)).encode()).calls
    assert call.id is None
    assert call.is_request


def test_arrays_are_read_to_any_depth_in_order() -> None:
    assert tools([tool_call("a"), [[tool_call("b")], [], tool_call("c")], 3, None, "x", {}, tool_call("d")]) == [
        *"abcd"
    ]
    assert parse_body(b"[]").batch
    assert not parse_body(b"{}").batch


@pytest.mark.parametrize("params", [None, [], "x", {}, {"name": None}, {"name": 3}, {"name": ["search"]}])
def test_a_call_without_a_tools_name_is_still_a_call(params: Any) -> None:
    assert tools({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}) == [None]


def test_escapes_are_read_as_any_parser_reads_them() -> None:
    body = rb'{"\u006dethod":"tools\/call","id":1,"params":{"n\u0061me":"se\u0061rch"}}'
    assert parse_body(body).calls == [RpcCall("tools/call", 1, True, "search")]
    assert parse_body(b"\xef\xbb\xbf" + body).calls == [RpcCall("tools/call", 1, True, "search")]


UNREADABLE = {
    "no JSON": b"tools/call",
    "cut off": b'{"method":"tools/call"',
    "trailing comma": b'{"method":"tools/call","params":{"name":"search"},}',
    "two documents": b'{"method":"ping"}\n{"method":"tools/call"}',
    "single quotes": b"{'method':'tools/call'}",
    "a comment": b'{/**/"method":"tools/call"}',
    "UTF-16": '{"method":"tools/call"}'.encode("utf-16"),
    "UTF-32": '{"method":"tools/call"}'.encode("utf-32"),
    "Latin-1": '{"method":"é"}'.encode("latin-1"),
    "nested without end": b"[" * 500_000,
    "nested deeply": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a number without end": b'{"method":"tools/call","id":' + b"1" * 500_000 + b"}",
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
async def test_what_cannot_be_parsed_never_reaches_the_application(body: bytes, limiter: Limiter) -> None:
    response = await send_request(MCPRateLimit(app := ToolRunner()), body)
    assert response.status == 400
    assert response.json == {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}}
    assert app.bodies == []


TWICE = {
    "method": b'{"id":1,"method":"ping","method":"tools/call","params":{"name":"search"}}',
    "method, escaped": rb'{"id":1,"method":"ping","m\u0065thod":"tools/call","params":{"name":"search"}}',
    "params": b'{"id":1,"method":"tools/call","params":{"name":"other"},"params":{"name":"search"}}',
    "name": b'{"id":1,"method":"tools/call","params":{"name":"other","name":"search"}}',
    "id": b'{"id":1,"id":2,"method":"tools/call","params":{"name":"search"}}',
    "in a batch": b'[{"id":1,"method":"ping"},[{"id":1,"method":"ping","method":"tools/call"}]]',
}


@pytest.mark.parametrize("body", TWICE.values(), ids=TWICE)
async def test_a_member_that_occurs_twice_is_refused_where_it_would_matter(body: bytes, limiter: Limiter) -> None:
    response = await send_request(MCPRateLimit(app := ToolRunner()), body)
    assert (response.status, response.json["error"]["code"]) == (400, -32600)
    assert app.bodies == []


def test_a_member_that_occurs_twice_in_a_tools_arguments_is_the_applications_business() -> None:
    body = b'{"id":1,"method":"tools/call","params":{"name":"search","arguments":{"q":1,"q":2}}}'
    assert parse_body(body).calls == [RpcCall("tools/call", 1, True, "search")]


def test_a_refusal_tells_the_status_and_the_code() -> None:
    with pytest.raises(RefusalError, match=r"^Parse error$") as refused:
        parse_body(b"{")
    assert (refused.value.status, refused.value.code, refused.value.headers) == (400, -32700, {})


LYING = {
    "no protocol headers": (),
    "another method": ((b"mcp-method", b"ping"),),
    "another tool": ((b"mcp-method", b"tools/call"), (b"mcp-name", b"other")),
    "an encoded name": ((b"mcp-method", b"tools/call"), (b"mcp-name", b"=?base64?b3RoZXI=?=")),
    "an exempt method of the newest version": (
        (b"mcp-protocol-version", b"2026-07-28"),
        (b"mcp-method", b"server/discover"),
    ),
    "two protocol versions": ((b"mcp-protocol-version", b"2026-07-28"), (b"mcp-protocol-version", b"2025-03-26")),
}


@pytest.mark.parametrize("headers", LYING.values(), ids=LYING)
async def test_headers_cannot_hide_a_call(headers: tuple[tuple[bytes, bytes], ...], limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"search": "2/m"})
    assert await statuses(wrapped, 3, headers=(JSON, *headers)) == [200, 200, 429]
    assert app.ran == ["search"] * 2


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"content-type", b"text/plain"), JSON),
        (JSON, (b"content-type", b"text/plain")),
        ((b"content-type", b"text/plain, application/json"),),
        ((b"content-type", b"APPLICATION/JSON; charset=utf-8"),),
        ((b"Content-Type", b"application/vnd.api+json"),),
    ],
)
async def test_a_missing_or_doubtful_content_type_counts_as_json(headers: Any, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "1/m"})
    assert await statuses(wrapped, 2, headers=headers) == [200, 429]


async def test_any_content_type_is_read_where_the_application_heeds_none(limiter: Limiter) -> None:
    text = ((b"content-type", b"text/plain"),)
    careless = MCPRateLimit(ToolRunner(), tools={"search": "1/m"}, any_content_type=True)
    assert await statuses(careless, 2, headers=text) == [200, 429]
    form = http_scope(((b"content-type", b"application/x-www-form-urlencoded"),))
    assert (await send_request(careless, b"grant_type=refresh_token", form)).status == 400


@pytest.mark.parametrize("method", ["PUT", "PATCH", "post", "BREW"])
async def test_any_method_that_may_carry_a_body_is_read(method: str, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "1/m"})
    assert await statuses(wrapped, 2, method=method) == [200, 429]
