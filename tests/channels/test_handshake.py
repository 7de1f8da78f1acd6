"""Connections that are one too many: refused in `connect`, or by the middleware before a consumer is made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ratelimit import ConfigurationError, Limiter
from ratelimit.testing import FakeClock, isolated
from ratelimit_channels import WS_CLOSE_RATE_LIMITED, WebsocketHandshakeLimit
from tests.channels.consumers import Counted, Guarded
from tests.channels.sockets import EXTENSIONS, opened, scope_of, socket, user


async def test_connect_closes_with_4029_and_sends_nothing(limiter: Limiter) -> None:
    for _ in range(10):
        async with opened(Guarded.as_asgi()):
            pass
    assert await socket(Guarded.as_asgi()).connect() == (False, WS_CLOSE_RATE_LIMITED)
    assert WS_CLOSE_RATE_LIMITED == 4029


async def test_an_open_connection_can_be_closed_with_4029(limiter: Limiter) -> None:
    async with opened(Guarded.as_asgi()) as one:
        for _ in range(20):
            await one.send_json_to({})
            assert await one.receive_json_from() == {"type": "ANSWER"}
        await one.send_json_to({})
        assert (await one.receive_json_from())["type"] == "RATE_LIMITED"
        assert await one.receive_output() == {"type": "websocket.close", "code": 4029}


async def test_the_middleware_lets_ten_connections_a_minute_through(
    counted: type[Counted], limiter: Limiter, fake_clock: FakeClock
) -> None:
    app = WebsocketHandshakeLimit(counted.as_asgi())
    for _ in range(10):
        async with opened(app):
            pass
    assert await socket(app).connect() == (False, WS_CLOSE_RATE_LIMITED)
    async with opened(app, "198.51.100.1"):
        pass
    assert counted.connects == 11
    fake_clock.advance(60)
    async with opened(app):
        pass


async def test_where_the_server_can_it_answers_429_with_the_wait(counted: type[Counted], fake_clock: FakeClock) -> None:
    app = WebsocketHandshakeLimit(counted.as_asgi(), rate="2/m")
    with isolated(clock=fake_clock, headers="ietf"):
        for _ in range(2):
            async with opened(app, extensions=EXTENSIONS):
                pass
        refused = socket(app, extensions=EXTENSIONS)
        fake_clock.advance(0.4)
        await refused.send_input({"type": "websocket.connect"})
        start, body = await refused.receive_output(), await refused.receive_output()
        await refused.wait()
    assert start["type"] == "websocket.http.response.start"
    assert start["status"] == 429
    headers = dict(start["headers"])
    assert headers[b"retry-after"] == b"60"
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"ratelimit-policy"] == b'"websocket:connect";q=2;w=60'
    assert json.loads(body["body"])["error"] == {
        "code": "RATE_LIMITED",
        "message": "Limit exceeded: Max 2 requests per minute. Please try again later.",
        "details": {"retry_after_ms": 59_600},
        "request_id": None,
    }
    assert refused.output_queue.empty()
    assert counted.connects == 2


async def test_a_logged_in_user_is_counted_as_one(counted: type[Counted], limiter: Limiter) -> None:
    app = WebsocketHandshakeLimit(counted.as_asgi(), rate="1/m")
    async with opened(app, user=user(7)), opened(app, user=user(8)):
        assert await socket(app, "198.51.100.1", user=user(7)).connect() == (False, WS_CLOSE_RATE_LIMITED)


async def test_callables_are_given_the_scope(counted: type[Counted], limiter: Limiter) -> None:
    app = WebsocketHandshakeLimit(counted.as_asgi(), rate="1/m", key=lambda scope: scope["path"])
    async with opened(app), opened(app, path="/other/"):
        assert (await socket(app, "198.51.100.1").connect())[0] is False


async def test_other_scopes_pass_untouched(limiter: Limiter) -> None:
    seen: list[tuple[Any, ...]] = []

    async def app(*received: Any) -> None:
        seen.append(received)

    async def receive() -> Any: ...
    async def send(message: Any) -> None: ...

    limited = WebsocketHandshakeLimit(app, rate="0/m")
    for kind in ("http", "lifespan"):
        scope = {"type": kind}
        await limited(scope, receive, send)
        assert seen.pop() == ({"type": kind}, receive, send)


async def test_a_client_that_left_during_the_handshake_is_sent_nothing(limiter: Limiter) -> None:
    async def receive() -> Any:
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    await WebsocketHandshakeLimit(Counted.as_asgi(), rate="0/m")(scope_of(), receive, send)


@pytest.mark.parametrize("mistake", [{"rule": "WS_CONECT"}, {"rate": "2 per minute"}, {"key": "usr"}])
def test_a_mistake_is_an_error_when_the_application_is_put_together(mistake: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(mistake.values()))):
        WebsocketHandshakeLimit(Counted.as_asgi(), **mistake)
