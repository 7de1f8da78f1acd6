"""Connections that are open at once: who is let in, who is refused before a consumer is made, and what leaving gives back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.utils.functional import SimpleLazyObject

from ratelimit import ConfigurationError, Identity, Limiter, StoreError
from ratelimit.connections import ConnectionCap
from ratelimit.testing import FakeClock, isolated
from ratelimit_channels import (
    WS_CLOSE_RATE_LIMITED,
    WebsocketConnectionLimit,
    WebsocketHandshakeLimit,
    WebsocketMessageLimit,
)
from tests.channels.consumers import Counted, Json, Raw, Sync, SyncJson, Text
from tests.channels.sockets import ADDRESS, EXTENSIONS, ask, opened, scope_of, socket, user
from tests.core.far_places import FarPlacesStore

pytestmark = pytest.mark.usefixtures("renewed_by_hand")
CALLER = f"ip:{ADDRESS}"
REFUSED = (False, WS_CLOSE_RATE_LIMITED)


async def test_after_ten_refusals_two_are_open_and_dropping_one_admits_one(
    counted: type[Counted], limiter: Limiter
) -> None:
    app = WebsocketConnectionLimit(counted.as_asgi(), 2)
    async with opened(app):
        async with opened(app):
            for _ in range(10):
                assert await socket(app).connect() == REFUSED
            assert (app.cap.taken(CALLER), counted.connects) == (2, 2)
        async with opened(app):
            assert await socket(app).connect() == REFUSED
            assert app.cap.taken(CALLER) == 2
    assert (app.cap.taken(CALLER), app.cap.held, counted.connects) == (0, 0, 3)


async def test_where_the_server_can_it_answers_429(counted: type[Counted], fake_clock: FakeClock) -> None:
    app = WebsocketConnectionLimit(counted.as_asgi(), 1)
    with isolated(clock=fake_clock, headers="ietf"):
        async with opened(app, extensions=EXTENSIONS):
            refused = socket(app, extensions=EXTENSIONS, headers=[(b"x-request-id", b"r-1")])
            await refused.send_input({"type": "websocket.connect"})
            start, body = await refused.receive_output(), await refused.receive_output()
            await refused.wait()
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
    headers = dict(start["headers"])
    assert b"retry-after" not in headers  # nobody knows when somebody will leave
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"ratelimit-policy"] == b'"connections";q=1;qu="concurrent-requests"'
    assert json.loads(body["body"]) == {
        "error": {
            "code": "RATE_LIMITED",
            "message": "Limit exceeded: Max 1 connection at once. Please try again later.",
            "details": {"retry_after_ms": None},
            "request_id": "r-1",
        }
    }
    assert refused.output_queue.empty()
    assert counted.connects == 1


@pytest.mark.parametrize("kind", [Json, Text, Raw, Sync, SyncJson])
async def test_any_kind_of_consumer(kind: Any, limiter: Limiter) -> None:
    app = WebsocketConnectionLimit(kind.as_asgi(), 1)
    for _ in range(3):
        async with opened(app) as one:
            assert await ask(one) == {"type": "ANSWER"}
            assert await socket(app).connect() == REFUSED
    assert app.cap.taken(CALLER) == 0


class Failing(AsyncJsonWebsocketConsumer):
    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        raise LookupError("in the application")


class FailingInConnect(AsyncJsonWebsocketConsumer):
    async def connect(self) -> None:
        raise LookupError("in the application")


class Turning(AsyncJsonWebsocketConsumer):
    async def connect(self) -> None:
        await self.close(code=4001)


async def test_a_consumer_that_fails_gives_its_place_back(limiter: Limiter) -> None:
    app = WebsocketConnectionLimit(Failing.as_asgi(), 1)
    one = socket(app)
    await one.connect()
    assert app.cap.taken(CALLER) == 1
    await one.send_json_to({})
    with pytest.raises(LookupError):
        await one.wait()
    assert (app.cap.taken(CALLER), app.cap.held) == (0, 0)


async def test_a_consumer_that_fails_in_connect_gives_its_place_back(limiter: Limiter) -> None:
    app = WebsocketConnectionLimit(FailingInConnect.as_asgi(), 1)
    with pytest.raises(LookupError):
        await socket(app).connect()
    assert app.cap.taken(CALLER) == 0


async def test_a_consumer_that_turns_the_client_down_gives_its_place_back(limiter: Limiter) -> None:
    app = WebsocketConnectionLimit(Turning.as_asgi(), 1)
    for _ in range(3):
        one = socket(app)
        assert await one.connect() == (False, 4001)
        await one.disconnect()
    assert app.cap.taken(CALLER) == 0


async def test_a_task_that_is_cancelled_gives_its_place_back(limiter: Limiter) -> None:
    app = WebsocketConnectionLimit(Json.as_asgi(), 1)
    one = socket(app)
    await one.connect()
    assert one.future is not None
    one.future.cancel()
    await asyncio.wait([one.future])
    assert (app.cap.taken(CALLER), app.cap.held) == (0, 0)


@pytest.mark.parametrize("most", [0, 1])
async def test_a_client_that_left_during_the_handshake_is_sent_nothing(most: int, limiter: Limiter) -> None:
    received = iter([{"type": "websocket.disconnect", "code": 1006}])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.disconnect"

    async def receive() -> Any:
        return next(received)

    async def send(message: Any) -> None:
        raise AssertionError(message)

    limited = WebsocketConnectionLimit(app, most)
    await limited(scope_of(), receive, send)
    assert limited.cap.taken(CALLER) == 0
    assert list(received) == []


async def test_other_scopes_pass_untouched(limiter: Limiter) -> None:
    seen: list[tuple[Any, ...]] = []

    async def app(*received: Any) -> None:
        seen.append(received)

    async def receive() -> Any: ...
    async def send(message: Any) -> None: ...

    limited = WebsocketConnectionLimit(app, 0)
    for kind in ("http", "lifespan"):
        scope = {"type": kind}
        await limited(scope, receive, send)
        assert seen.pop() == ({"type": kind}, receive, send)


async def test_what_the_application_is_given_is_the_servers_own(limiter: Limiter) -> None:
    seen: list[tuple[Any, ...]] = []

    async def app(*received: Any) -> None:
        seen.append(received)

    async def receive() -> Any: ...
    async def send(message: Any) -> None: ...

    scope = scope_of()
    await WebsocketConnectionLimit(app)(scope, receive, send)
    assert seen == [(scope, receive, send)]


async def test_a_user_has_one_cap_wherever_it_comes_from(limiter: Limiter) -> None:
    app = WebsocketConnectionLimit(Json.as_asgi(), 1)
    async with opened(app, user=user(7)), opened(app, user=user(8)):
        assert await socket(app, "198.51.100.1", user=SimpleLazyObject(lambda: user(7))).connect() == REFUSED
        assert app.cap.taken(Identity(user="7")) == 1


@pytest.mark.parametrize(
    "limited",
    [
        lambda app: WebsocketConnectionLimit(app, 1, name="open"),
        lambda app: WebsocketMessageLimit(app, rate="9/m", group="messages"),
        lambda app: WebsocketHandshakeLimit(app, rate="9/m", group="handshakes"),
    ],
    ids=["connections", "messages", "handshakes"],
)
async def test_a_user_that_is_a_query_away_is_loaded_outside_the_event_loop(limited: Any, limiter: Limiter) -> None:
    loaded = []

    def load() -> Any:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        loaded.append(7)
        return user(7)

    async with opened(limited(Text.as_asgi()), user=SimpleLazyObject(load)) as one:
        await ask(one)
    assert loaded == [7]


async def test_plans_of_different_size(limiter: Limiter) -> None:
    def most(who: Identity) -> int | None:
        return None if who.superuser else 2 if who.user else 1

    app = WebsocketConnectionLimit(Json.as_asgi(), most)
    async with AsyncExitStack() as open_:
        for _ in range(5):
            await open_.enter_async_context(opened(app, user=user(1, is_superuser=True)))
        for _ in range(2):
            await open_.enter_async_context(opened(app, user=user(7)))
        await open_.enter_async_context(opened(app))
        assert await socket(app).connect() == REFUSED
        assert await socket(app, user=user(7)).connect() == REFUSED


async def test_a_key_of_the_applications_own(limiter: Limiter) -> None:
    app = WebsocketConnectionLimit(Json.as_asgi(), 1, key=lambda scope: scope["path"])
    async with opened(app), opened(app, path="/other/"):
        assert await socket(app, "198.51.100.1").connect() == REFUSED
        assert app.cap.taken("key:/ws/") == 1


async def test_handshakes_are_counted_and_connections_capped_side_by_side(limiter: Limiter) -> None:
    app = WebsocketHandshakeLimit(WebsocketConnectionLimit(Json.as_asgi(), 1), rate="4/m")
    for _ in range(2):
        async with opened(app):
            assert await socket(app).connect() == REFUSED
    assert await socket(app).connect() == REFUSED  # the fifth handshake of this minute


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ({"most": -1}, "most -1"),
        ({"key": "usr"}, "unknown key strategy 'usr'"),
        ({"lease": 0}, "lease 0"),
        ({"on_outage": "shut"}, "on_outage 'shut'"),
    ],
)
def test_a_mistake_is_an_error_when_the_application_is_put_together(mistake: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        WebsocketConnectionLimit(Json.as_asgi(), **mistake)


def test_a_coroutine_function_is_no_key() -> None:
    async def key(scope: Any) -> str:
        return "k"

    with pytest.raises(ConfigurationError, match="coroutine function"):
        WebsocketConnectionLimit(Json.as_asgi(), key=key)  # type: ignore[arg-type]


@pytest.mark.parametrize("on_outage", ["open", "closed"])
async def test_while_the_store_is_out_the_policy_decides(on_outage: str, fake_clock: FakeClock) -> None:
    store = FarPlacesStore()
    store.places.error = StoreError("down")  # type: ignore[attr-defined]
    with isolated(store, fake_clock):
        app = WebsocketConnectionLimit(Json.as_asgi(), 1, on_outage=on_outage)
        one = socket(app)
        connected, _ = await one.connect()
        assert connected is (on_outage == "open")
        if connected:
            await one.disconnect()


class TestALostPlace:
    """A process stood still for longer than a lease, and another has taken the only place."""

    @pytest.fixture
    def taken(self, limiter: Limiter, fake_clock: FakeClock) -> Callable[[ConnectionCap], Any]:
        async def taken(cap: ConnectionCap) -> None:
            fake_clock.advance(60)
            await ConnectionCap(1).hold(CALLER).__aenter__()
            for _ in range(10):
                await cap._loops[asyncio.get_running_loop()].turn()

        return taken

    async def test_its_connection_stays_open_by_default(self, taken: Callable[[ConnectionCap], Any]) -> None:
        app = WebsocketConnectionLimit(Json.as_asgi(), 1)
        async with opened(app) as one:
            await taken(app.cap)
            assert await ask(one) == {"type": "ANSWER"}
        assert app.cap.taken(CALLER) == 1

    async def test_its_connection_is_closed_by_choice(self, taken: Callable[[ConnectionCap], Any]) -> None:
        app = WebsocketConnectionLimit(Json.as_asgi(), 1, close_lost=True)
        async with opened(app) as one:
            await taken(app.cap)
            assert await one.receive_output() == {"type": "websocket.close", "code": 4029}
            await one.send_json_to({})
            assert await one.receive_nothing()  # what the consumer sends after that goes nowhere
        assert (app.cap.taken(CALLER), app.cap.held) == (1, 0)

    @pytest.mark.parametrize("error", [OSError("gone"), RuntimeError("closed")])
    async def test_a_client_that_has_gone_meanwhile_is_no_error(
        self, error: Exception, taken: Callable[[ConnectionCap], Any]
    ) -> None:
        ended = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await ended.wait()

        async def receive() -> Any: ...

        async def send(message: Any) -> None:
            raise error

        limited = WebsocketConnectionLimit(app, 1, close_lost=True)
        serving = asyncio.create_task(limited(scope_of(), receive, send))
        await asyncio.sleep(0)
        await taken(limited.cap)
        ended.set()
        await serving

    async def test_an_application_that_has_closed_is_not_closed_again(
        self, taken: Callable[[ConnectionCap], Any]
    ) -> None:
        sent: list[Any] = []
        ended = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "websocket.close", "code": 1000})
            await ended.wait()

        async def receive() -> Any: ...

        async def send(message: Any) -> None:
            sent.append(message)

        limited = WebsocketConnectionLimit(app, 1, close_lost=True)
        serving = asyncio.create_task(limited(scope_of(), receive, send))
        await asyncio.sleep(0)
        await taken(limited.cap)
        ended.set()
        await serving
        assert sent == [{"type": "websocket.close", "code": 1000}]

    async def test_an_application_that_ends_while_it_is_closed_ends_the_closing(
        self, taken: Callable[[ConnectionCap], Any]
    ) -> None:
        ended, closing = asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await ended.wait()

        async def receive() -> Any: ...

        async def send(message: Any) -> None:
            closing.set()
            await asyncio.Event().wait()  # a peer that never answers the close

        limited = WebsocketConnectionLimit(app, 1, close_lost=True)
        serving = asyncio.create_task(limited(scope_of(), receive, send))
        await asyncio.sleep(0)
        await taken(limited.cap)
        await closing.wait()
        ended.set()
        await serving
        assert limited.cap.held == 0
