"""What goes through the middleware comes out as it went in: scopes, messages, exceptions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ratelimit import Limiter
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock
from ratelimit_asgi import PathRule, RateLimitMiddleware
from tests.asgi.raw import Connection, ask, http, ok, websocket


def limited(app: Any, rate: str = "4/m", **settings: Any) -> RateLimitMiddleware:
    limiter = Limiter("memory://", settings=Settings(**settings), clock=FakeClock())
    return RateLimitMiddleware(app, [PathRule("/", rate)], limiter=limiter)


styles = pytest.mark.parametrize("style", ["none", "ietf", "x"])


@styles
@pytest.mark.parametrize("kind", ["lifespan", "http.push", "telemetry"])
async def test_scopes_of_other_types_are_handed_on_untouched(kind: str, style: str) -> None:
    seen: list[Any] = []

    async def app(*given: Any) -> None:
        seen.extend(given)

    scope = {"type": kind}
    one = Connection(scope)
    await limited(app, "0/m", headers=style)(scope, one.receive, one.send)
    assert seen == [scope, one.receive, one.send]
    assert seen[0] is scope
    assert scope == {"type": kind}


async def test_with_headers_off_the_application_gets_the_servers_own_scope_receive_and_send() -> None:
    seen: list[Any] = []

    async def app(*given: Any) -> None:
        seen.extend(given)

    one = Connection(http())
    await limited(app)(one.scope, one.receive, one.send)
    assert seen[0] is one.scope
    assert seen[1:] == [one.receive, one.send]


async def test_the_scope_has_all_it_had_and_three_notes_more() -> None:
    scope = http(state={"database": object()}, extensions={"http.response.trailers": {}})
    before = dict(scope)
    await ask(limited(ok), scope)
    added = {name: scope.pop(name) for name in scope.keys() - before.keys()}
    assert scope == before
    assert scope["state"] is before["state"]
    assert added.keys() == {"limit_decision", "limit_key", "ratelimit.spent"}
    assert added["limit_key"] == "ip:203.0.113.7"
    assert added["limit_decision"].remaining == 3


@styles
async def test_a_body_arrives_as_it_was_sent_and_then_the_disconnect(style: str) -> None:
    chunks = [b"first", b"", b"\x00\xff" * 40_000]
    messages = [{"type": "http.request", "body": chunk, "more_body": number < 2} for number, chunk in enumerate(chunks)]
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while True:
            seen.append(await receive())
            if seen[-1]["type"] == "http.disconnect":
                break

    one = Connection(http(method="POST"), messages)
    await limited(app, headers=style)(one.scope, one.receive, one.send)
    assert seen[:3] == messages
    assert seen[3] == {"type": "http.disconnect"}
    assert all(got is sent for got, sent in zip(seen, messages, strict=False))


@styles
async def test_receive_is_never_called(style: str) -> None:
    app = limited(ok, "1/m", headers=style)
    for status in (200, 429):
        one = Connection(http(method="POST"))
        await app(one.scope, one.receive, one.send)
        assert (one.status, one.reads) == (status, 0)


@styles
async def test_messages_that_carry_no_headers_are_passed_on_as_they_are(style: str) -> None:
    messages = [
        {"type": "http.response.start", "status": 200, "headers": [], "trailers": True},
        {"type": "http.response.body", "body": b"a" * 100_000, "more_body": True},
        {"type": "http.response.zerocopysend", "file": 7, "count": 3, "more_body": True},
        {"type": "http.response.pathsend", "path": "/srv/file"},
        {"type": "http.response.body", "body": b""},
        {"type": "http.response.trailers", "headers": [(b"digest", b"abc")], "more_trailers": False},
        {"type": "http.response.early_hint", "links": [b"</style.css>"]},
        {"type": "http.response.push", "path": "/style.css", "headers": [(b"accept", b"*/*")]},
    ]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    one = Connection(http())
    await limited(app, headers=style)(one.scope, one.receive, one.send)
    assert all(got is sent for got, sent in zip(one.sent[1:], messages[1:], strict=True))
    start = {name: value for name, value in one.sent[0].items() if name != "headers"}
    assert start == {"type": "http.response.start", "status": 200, "trailers": True}
    assert messages[0]["headers"] == []  # the application's own message is not changed


async def test_each_chunk_is_sent_before_the_next_one_is_made() -> None:
    order: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(3):
            order.append(f"made {number}")
            await send({"type": "http.response.body", "body": b"%d" % number, "more_body": number < 2})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            order.append(f"sent {message['body'].decode()}")

    one = Connection(http())
    await limited(app, headers="x")(one.scope, one.receive, send)
    assert order == ["made 0", "sent 0", "made 1", "sent 1", "made 2", "sent 2"]


@pytest.mark.parametrize("headers", [{}, {"headers": None}, {"headers": []}, {"headers": iter([(b"A", b"1")])}])
async def test_headers_may_be_missing_or_an_iterator(headers: dict[str, Any]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, **headers})

    one = await ask(limited(app, headers="x"))
    assert one.headers["x-ratelimit-remaining"] == "3"
    assert ("A" in one.headers) is ("headers" in headers and headers["headers"] not in (None, []))


async def test_headers_are_added_once_and_the_applications_own_are_kept() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        own = [(b"X-RateLimit-Limit", b"mine"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
        await send({"type": "http.response.start", "status": 200, "headers": own})

    one = await ask(limited(app, headers="x"))
    assert one.sent[0]["headers"] == [
        (b"X-RateLimit-Limit", b"mine"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"x-ratelimit-remaining", b"3"),
        (b"x-ratelimit-reset", b"60"),
    ]


async def test_two_middlewares_with_one_rule_count_once_and_add_headers_once() -> None:
    rule = PathRule("/", "4/m")
    limiter = Limiter("memory://", settings=Settings(headers="x"), clock=FakeClock())
    inner = RateLimitMiddleware(ok, [rule], limiter=limiter)
    outer = RateLimitMiddleware(inner, [rule], limiter=limiter)
    one = await ask(outer)
    assert [name for name, _ in one.sent[0]["headers"]].count(b"x-ratelimit-limit") == 1
    assert one.headers["x-ratelimit-remaining"] == "3"


class Boom(Exception):
    pass


@styles
@pytest.mark.parametrize("started", [False, True])
async def test_an_applications_error_is_the_servers_to_handle(style: str, started: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise Boom

    one = Connection(http())
    with pytest.raises(Boom):
        await limited(app, headers=style)(one.scope, one.receive, one.send)
    assert len(one.sent) == started


@styles
async def test_an_error_of_send_reaches_the_application(style: str) -> None:
    async def gone(message: Any) -> None:
        raise OSError("the client has left")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(OSError, match="the client has left"):
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise Boom

    one = Connection(http())
    with pytest.raises(Boom):
        await limited(app, headers=style)(one.scope, one.receive, gone)


@styles
async def test_a_cancelled_request_ends_in_the_application(style: str) -> None:
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    one = Connection(http())
    task = asyncio.create_task(limited(app, headers=style)(one.scope, one.receive, one.send))  # type: ignore[arg-type]
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()


@styles
async def test_requests_at_one_time_are_counted_exactly_and_never_mixed(style: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        await ok(scope, receive, send)

    middleware = limited(app, "100/m", headers=style)
    found = await asyncio.gather(*(ask(middleware, http(f"/{number}")) for number in range(300)))
    assert sorted(one.status for one in found) == [200] * 100 + [429] * 200
    if style == "x":
        left = [int(one.headers["x-ratelimit-remaining"]) for one in found if one.status == 200]
        assert sorted(left) == list(range(100))


async def test_a_denial_is_one_response_of_two_messages() -> None:
    app = limited(ok, "0/m")
    one = await ask(app)
    assert [message["type"] for message in one.sent] == ["http.response.start", "http.response.body"]
    assert one.headers["content-length"] == str(len(one.body))
    assert not one.sent[1].get("more_body")


@styles
async def test_websocket_messages_pass_as_they_are(style: str) -> None:
    messages = [
        {"type": "websocket.connect"},
        {"type": "websocket.receive", "text": "a"},
        {"type": "websocket.receive", "bytes": b"b"},
        {"type": "websocket.disconnect", "code": 1000},
    ]
    replies = [{"type": "websocket.send", "text": "a"}, {"type": "websocket.close", "code": 1000}]
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for _ in messages:
            seen.append(await receive())
        await send({"type": "websocket.accept", "subprotocol": "chat", "headers": [(b"a", b"1")]})
        for reply in replies:
            await send(reply)

    one = Connection(websocket(), messages)
    await limited(app, headers=style)(one.scope, one.receive, one.send)
    assert all(got is sent for got, sent in zip(seen, messages, strict=True))
    assert all(got is sent for got, sent in zip(one.sent[1:], replies, strict=True))
    assert one.sent[0]["subprotocol"] == "chat"
    assert one.sent[0]["headers"][0] == (b"a", b"1")
    assert (b"x-ratelimit-remaining" in dict(one.sent[0]["headers"])) is (style == "x")
