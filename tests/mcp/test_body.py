"""The wrapper as ASGI: what the application and the server see of each other through it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ratelimit import ConfigurationError, Decision, Limiter
from ratelimit.answers import Answer
from ratelimit.testing import isolated
from ratelimit_mcp import MCPRateLimit, mcp_scope
from tests.mcp.asgi import (
    JSON,
    Message,
    Response,
    ToolRunner,
    Wire,
    chunks,
    http_scope,
    send_request,
    statuses,
    tool_call,
)

CALL = json.dumps(tool_call()).encode()


async def test_a_chunked_body_reaches_the_application_byte_for_byte(limiter: Limiter) -> None:
    app = ToolRunner()
    parts = [CALL[:10], b"", CALL[10:] + b" \r\n"]
    response = await send_request(MCPRateLimit(app), b"", wire=Wire(chunks(*parts)))
    assert app.bodies == [b"".join(parts)] == [response.body]
    assert app.ran == ["search"]


async def test_after_the_body_the_application_waits_for_the_servers_own_messages(limiter: Limiter) -> None:
    later: Message = {"type": "http.disconnect", "told": "by the server"}
    app = ToolRunner()
    await send_request(MCPRateLimit(app), b"", wire=Wire([*chunks(CALL), later]))
    assert app.after_body == [later]


async def test_a_body_message_may_leave_out_its_defaults(limiter: Limiter) -> None:
    app = ToolRunner()
    wire = Wire([{"type": "http.request", "more_body": True}, {"type": "http.request", "body": CALL}])
    await send_request(MCPRateLimit(app), b"", wire=wire)
    assert app.bodies == [CALL]


async def test_a_client_that_leaves_half_way_is_not_counted_and_runs_nothing(limiter: Limiter) -> None:
    app = ToolRunner()
    wrapped = MCPRateLimit(app, tools={"search": "1/m"})
    half: Message = {"type": "http.request", "body": CALL, "more_body": True}
    await send_request(wrapped, b"", wire=Wire([half]))
    assert (app.bodies, app.ran) == ([b""], [])
    assert app.after_body == [{"type": "http.disconnect"}]
    assert await statuses(wrapped, 2) == [200, 429]


async def test_the_response_starts_once_and_passes_unchanged(limiter: Limiter) -> None:
    sent: list[Message] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 202, "headers": [(b"x-own", b"1"), (b"x-own", b"2")]})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await send({"type": "http.response.body", "body": b"b"})
        await send({"type": "http.response.trailers", "headers": []})

    async def send(message: Message) -> None:
        sent.append(message)

    await MCPRateLimit(app)(http_scope(), Wire(chunks(CALL)).receive, send)
    assert [message["type"].removeprefix("http.response.") for message in sent] == ["start", "body", "body", "trailers"]
    assert sent[0] == {"type": "http.response.start", "status": 202, "headers": [(b"x-own", b"1"), (b"x-own", b"2")]}


async def test_an_exception_of_the_application_passes_and_leaves_no_scope_behind(limiter: Limiter) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert mcp_scope.get() is scope
        raise LookupError("the application's own")

    with pytest.raises(LookupError, match="the application's own"):
        await send_request(MCPRateLimit(app), CALL)
    assert mcp_scope.get() is None


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
async def test_other_scopes_pass_untouched(kind: str) -> None:
    seen: list[Any] = []

    async def app(*given: Any) -> None:
        seen.extend([*given, mcp_scope.get()])

    scope, wire, response = {"type": kind}, Wire([]), Response()
    receive, send = wire.receive, response.messages.append
    await MCPRateLimit(app)(scope, receive, send)  # type: ignore[arg-type]
    assert seen == [scope, receive, send, None]
    assert wire.reads == 0


@pytest.mark.parametrize(
    "scope",
    [
        http_scope(method="GET"),
        http_scope(method="DELETE"),
        http_scope(method="OPTIONS"),
        http_scope(((b"content-type", b"text/plain"),)),
        http_scope(((b"content-type", b"application/x-www-form-urlencoded"),)),
        http_scope(((b"content-type", b"multipart/form-data; boundary=x"),)),
    ],
    ids=lambda scope: f"{scope['method']}-{scope['headers'][0][1].decode()[:19]}",
)
async def test_what_holds_no_json_is_handed_on_unread(scope: dict[str, Any], limiter: Limiter) -> None:
    received: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        received.append(receive)

    wire = Wire(chunks(CALL))
    await MCPRateLimit(app, max_body=1)(scope, wire.receive, None)  # type: ignore[arg-type]
    assert received == [wire.receive]
    assert wire.reads == 0


async def test_a_body_over_the_cap_is_refused_while_it_is_read(limiter: Limiter) -> None:
    app = ToolRunner()
    wire = Wire(chunks(*[b" " * 100_000] * 100))
    response = await send_request(MCPRateLimit(app), b"", wire=wire)
    assert response.status == 413
    assert response.json == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32600, "message": "The request's body is larger than 1000000 bytes"},
    }
    assert wire.reads == 11
    assert app.bodies == []


async def test_a_body_declared_over_the_cap_is_refused_unread(limiter: Limiter) -> None:
    wire = Wire(chunks(b" " * 10_000_000))
    scope = http_scope((JSON, (b"content-length", b"10000000")))
    assert (await send_request(MCPRateLimit(ToolRunner()), b"", scope, wire=wire)).status == 413
    assert wire.reads == 0


async def test_the_cap_is_a_number_of_bytes(limiter: Limiter) -> None:
    exact = MCPRateLimit(ToolRunner(), max_body=len(CALL))
    assert (await send_request(exact, CALL)).status == 200
    assert (await send_request(exact, CALL + b" ")).status == 413
    for wrong in (0, -1, 1.5, "1", None, True):
        with pytest.raises(ConfigurationError, match="max_body"):
            MCPRateLimit(ToolRunner(), max_body=wrong)  # type: ignore[arg-type]


async def test_a_compressed_body_is_refused_unread(limiter: Limiter) -> None:
    wire = Wire(chunks(CALL))
    scope = http_scope((JSON, (b"content-encoding", b"gzip")))
    response = await send_request(MCPRateLimit(ToolRunner()), b"", scope, wire=wire)
    assert (response.status, response.headers["accept-encoding"], wire.reads) == (415, "identity", 0)
    plain = http_scope((JSON, (b"content-encoding", b"identity")))
    assert (await send_request(MCPRateLimit(ToolRunner()), CALL, plain)).status == 200


async def test_an_empty_body_and_json_without_a_call_pass_uncounted(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), global_limit="1/m")
    bodies = [b"", b" \n", b"{}", b"[]", b"3", b"null", b'"text"', b'{"jsonrpc":"2.0","id":1,"result":{}}']
    assert [(await send_request(wrapped, body)).status for body in bodies] == [200] * 8
    assert app.bodies == bodies
    assert await statuses(wrapped, 2) == [200, 429]


class OpenWire(Wire):
    """A connection that stays open: after its messages, `receive` waits until the client leaves."""

    def __init__(self, messages: list[Message]) -> None:
        super().__init__(messages)
        self.left_by_client = asyncio.Event()
        self.waiting = asyncio.Event()

    async def receive(self) -> Message:
        if not self.left:
            self.waiting.set()
            await self.left_by_client.wait()
        return await super().receive()


async def test_after_a_body_in_three_pieces_the_application_waits_for_the_real_disconnect(limiter: Limiter) -> None:
    app = ToolRunner()
    wire = OpenWire(chunks(CALL[:7], b"", CALL[7:]))
    request = asyncio.create_task(send_request(MCPRateLimit(app, tools={"search": "1/m"}), b"", wire=wire))
    await wire.waiting.wait()
    assert (app.bodies, app.after_body, request.done()) == ([CALL], [], False)
    wire.left_by_client.set()
    assert (await request).body == CALL
    assert (app.after_body, wire.reads) == ([{"type": "http.disconnect"}], 4)


async def test_a_client_that_leaves_half_way_ends_the_request_at_once(limiter: Limiter) -> None:
    app = ToolRunner()
    half: Message = {"type": "http.request", "body": CALL[:20], "more_body": True}
    wire = OpenWire([half])
    wrapped = MCPRateLimit(app, tools={"search": "1/m"})
    request = asyncio.create_task(send_request(wrapped, b"", wire=wire))
    await wire.waiting.wait()
    wire.left_by_client.set()
    await request
    assert (app.ran, app.bodies) == ([], [b""])
    assert limiter.peek("MCP_GLOBAL", "ip:203.0.113.7").remaining == 100
    assert await statuses(wrapped, 1) == [200]


async def test_paths_without_calls_are_handed_on_unread(limiter: Limiter) -> None:
    received: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        received.append(receive)

    wire = Wire(chunks(CALL))
    wrapped = MCPRateLimit(app, paths="/mcp", global_limit="0/m")
    for path in ("/token", "/", "/mcpx", "/.well-known/oauth-authorization-server", "/x/mcp"):
        await wrapped({**http_scope(), "path": path}, wire.receive, None)  # type: ignore[arg-type]
    assert received == [wire.receive] * 5
    assert wire.reads == 0


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "//mcp", "/mcp//", "/mcp/x", "/mcp\n"])
@pytest.mark.parametrize("root", ["", "/api"])
async def test_however_its_path_is_spelled_a_call_is_read(path: str, root: str, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), paths=["/sse", "/mcp"], global_limit="0/m")
    scope = {**http_scope(), "path": root + path, "root_path": root}
    assert (await send_request(wrapped, CALL, scope)).status == 429


async def test_an_application_may_replace_the_answer(limiter: Limiter) -> None:
    def mine(decision: Decision, answer: Answer) -> Answer:
        return Answer(503, {**answer.headers, "x-mine": decision.rule}, answer.body.replace(b"Please", b"Do"))

    with isolated(answer=mine):
        response = await send_request(MCPRateLimit(ToolRunner(), global_limit="0/m"), CALL)
    assert (response.status, response.headers["x-mine"]) == (503, "mcp")
    assert response.headers["content-length"] == str(len(response.body))
    assert b"Do try again later" in response.body
    with isolated(answer=lambda decision, answer: "no"), pytest.raises(ConfigurationError, match="RATELIMIT_ANSWER"):
        await send_request(MCPRateLimit(ToolRunner(), global_limit="0/m"), CALL)


@pytest.mark.parametrize("answer", [Answer(700, {}, b""), Answer(429, {"x": "a\r\nb"}, b"")])
async def test_an_answer_that_cannot_be_sent_is_an_error(answer: Answer, limiter: Limiter) -> None:
    with isolated(answer=lambda *_: answer), pytest.raises(ConfigurationError, match="RATELIMIT_ANSWER"):
        await send_request(MCPRateLimit(ToolRunner(), global_limit="0/m"), CALL)
