"""WebSocket connections and messages under limits in Starlette, FastAPI and Litestar, and on real servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ratelimit import Limiter

pytest.importorskip("starlette")
pytest.importorskip("websockets")

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from ratelimit_asgi import WebsocketConnectionLimit, WebsocketMessageLimit
from tests.asgi.echo import echo
from tests.channels.serving import Served, connect
from tests.servers import wait_until

MESSAGE = "Limit exceeded: Max 2 connections at once. Please try again later."
DENIAL = {"type": "RATE_LIMITED", "error": "Rate limit exceeded. Max 2 requests per minute.", "retry_after": 60}
LIMITS = [Middleware(WebsocketConnectionLimit, most=2), Middleware(WebsocketMessageLimit, rate="2/m", close_after=2)]


def starlette() -> Any:
    return Starlette(routes=[WebSocketRoute("/ws/", echo)], middleware=LIMITS)


def fastapi() -> Any:
    app = pytest.importorskip("fastapi").FastAPI()
    app.websocket("/ws/")(echo)
    for limit in reversed(LIMITS):
        app.add_middleware(limit.cls, **limit.kwargs)
    return app


def litestar() -> Any:
    framework = pytest.importorskip("litestar")
    from litestar.exceptions import WebSocketDisconnect as Disconnect

    @framework.websocket("/ws/")
    async def handler(socket: framework.WebSocket) -> None:  # type: ignore[name-defined]
        await socket.accept()
        try:
            while True:
                await socket.send_text(await socket.receive_text())
        except Disconnect:
            pass

    handler.fn.__annotations__["socket"] = framework.WebSocket
    return framework.Litestar(
        [handler], middleware=[framework.middleware.DefineMiddleware(limit.cls, **limit.kwargs) for limit in LIMITS]
    )


@pytest.mark.parametrize("make", [starlette, fastapi, litestar])
def test_in_a_framework(make: Any, limiter: Limiter) -> None:
    client = TestClient(make())
    with client.websocket_connect("/ws/") as one:
        with client.websocket_connect("/ws/"):
            for _ in range(3):
                with pytest.raises(WebSocketDenialResponse) as refused, client.websocket_connect("/ws/"):
                    pass
                assert (refused.value.status_code, refused.value.json()["error"]["message"]) == (429, MESSAGE)
                assert "Retry-After" not in refused.value.headers
        with client.websocket_connect("/ws/"):
            pass
        for said in "abcd":
            one.send_text(said)
        assert [one.receive_text() for _ in range(2)] == ["a", "b"]
        assert [one.receive_json() for _ in range(2)] == [DENIAL] * 2
        with pytest.raises(WebSocketDisconnect) as closed:
            one.receive_text()
        assert closed.value.code == 4029


def test_http_is_untouched(limiter: Limiter) -> None:
    client = TestClient(WebsocketConnectionLimit(WebsocketMessageLimit(Starlette(), rate="0/m"), 0))
    with client:  # lifespan too
        assert client.get("/").status_code == 404


@pytest.fixture(params=["uvicorn", "hypercorn", "daphne"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    pytest.importorskip(request.param)
    one = Served(request.param, "tests.asgi.served_sockets:application", tmp_path / "log")
    try:
        wait_until(one.is_listening, f"{request.param} listens")
        yield one
    finally:
        one.end()


async def test_on_a_real_server(served: Served) -> None:
    async with AsyncExitStack() as open_:
        one = await open_.enter_async_context(connect(served.url("/ws/")))
        two = await open_.enter_async_context(connect(served.url("/ws/")))
        for _ in range(10):
            with pytest.raises(InvalidStatus) as refused:
                await connect(served.url("/ws/"))
            response = refused.value.response
            if served.kind == "daphne":
                assert response.status_code == 403
            else:
                assert (response.status_code, json.loads(response.body)["error"]["message"]) == (429, MESSAGE)
        await served.until(connections=2, held=2)
        for said in ["a", "ping", "b", "c", "d", "ping", "e"]:
            await one.send(said)
        assert [await one.recv() for _ in range(4)] == ["a", "ping", "b", "c"]
        denial = {**DENIAL, "error": "Rate limit exceeded. Max 3 requests per minute."}
        assert json.loads(await one.recv()) == denial
        assert await one.recv() == "ping"
        assert json.loads(await one.recv()) == denial
        with pytest.raises(ConnectionClosed):
            await one.recv()
        assert one.close_code == 4029
        await served.until(connections=1)
        two.transport.abort()
        await served.until(connections=0, held=0)
