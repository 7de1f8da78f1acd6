"""Limits in Starlette: around endpoints, as middleware of applications, routes and mounts, with Starlette's own middleware."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

pytest.importorskip("starlette")

from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint, WebSocketEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, Router, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from ratelimit import ConfigurationError, Limiter, Rule
from ratelimit.testing import isolated
from ratelimit_asgi import (
    PathRule,
    RateLimited,
    RateLimitMiddleware,
    check_ws_rate_limit,
    endpoint_ratelimit,
)
from tests.asgi.clients import codes
from tests.asgi.raw import Connection, http

pytestmark = pytest.mark.usefixtures("limiter")
DENIAL = {"type": "RATE_LIMITED", "error": "Rate limit exceeded. Max 2 requests per minute.", "retry_after": 60}


@endpoint_ratelimit(rate="2/m")
async def answer(request: Request) -> Response:
    """Doc."""
    return PlainTextResponse("ok")


threads: list[bool] = []


@endpoint_ratelimit(rate="2/m")
def threaded(request: Request) -> Response:
    threads.append(threading.current_thread() is threading.main_thread())
    return PlainTextResponse("ok")


class Items(HTTPEndpoint):
    @endpoint_ratelimit(rate="2/m")
    async def get(self, request: Request) -> Response:
        return PlainTextResponse("get")

    @endpoint_ratelimit(rate="2/m")
    def post(self, request: Request) -> Response:
        return PlainTextResponse("post")

    async def delete(self, request: Request) -> Response:
        return PlainTextResponse("delete")


async def hello(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("hello")
    await websocket.close()


class Talk(WebSocketEndpoint):
    encoding = "text"

    @endpoint_ratelimit(rate="2/m")
    async def on_receive(self, websocket: WebSocket, data: Any) -> None:
        await websocket.send_text(data)


class Guarded(WebSocketEndpoint):
    @endpoint_ratelimit(rate="1/m")
    async def on_connect(self, websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()


def app(**options: Any) -> Starlette:
    routes = [
        Route("/", answer),
        Route("/threaded/{x}", threaded),
        Route("/items", Items),
        WebSocketRoute("/hello", endpoint_ratelimit(rate="2/m")(hello)),
        WebSocketRoute("/talk", Talk),
        WebSocketRoute("/guarded", Guarded),
    ]
    return Starlette(routes=routes, **options)


def test_functions_and_methods_are_limited_each_route_and_method_apart() -> None:
    client = TestClient(app())
    assert codes(client, 3) == [200, 200, 429]
    assert [client.get(f"/threaded/{number}").status_code for number in range(3)] == [200, 200, 429]
    assert codes(client, 3, "/items") == [200, 200, 429]
    assert codes(client, 1, "/items", "HEAD") == [429]
    assert codes(client, 3, "/items", "POST") == [200, 200, 429]
    assert codes(client, 3, "/items", "DELETE") == [200] * 3
    assert codes(client, 1, "/items", "PUT") == [405]
    assert answer.__doc__ == "Doc."
    assert asyncio.iscoroutinefunction(answer)
    assert not asyncio.iscoroutinefunction(threaded)
    assert threads == [False, False]


def test_the_answer_is_the_error_contract() -> None:
    denied = [TestClient(app()).get("/") for _ in range(3)][-1]
    assert denied.json()["error"]["details"] == {"retry_after_ms": 60000}
    assert denied.headers["content-type"] == "application/json"
    assert denied.headers["retry-after"] == "60"


def test_responses_carry_limit_headers() -> None:
    with isolated(headers="x"):
        client = TestClient(app())
        for path in ("/", "/threaded/1", "/items"):
            assert client.get(path).headers["X-RateLimit-Remaining"] == "1"


@pytest.mark.parametrize("kind", [429, RateLimited, HTTPException])
def test_an_applications_own_handler_wins(kind: Any) -> None:
    def mine(request: Request, error: Any) -> Response:
        return PlainTextResponse("mine", 418)

    client = TestClient(app(exception_handlers={kind: mine}))
    assert codes(client, 3) == [200, 200, 418]


def test_a_mounted_applications_handlers_are_its_own() -> None:
    def mine(request: Request, error: Any) -> Response:
        return PlainTextResponse("mine", 418)

    outer = Starlette(routes=[Mount("/inner", app(exception_handlers={429: mine})), Route("/", answer)])
    client = TestClient(outer)
    assert codes(client, 3, "/inner/") == [200, 200, 418]
    assert codes(client, 3) == [200, 200, 429]


async def test_without_an_application_around_the_router_the_exception_reaches_the_server() -> None:
    router = Router([Route("/", answer)])
    for _ in range(2):
        one = Connection(http())
        await router(one.scope, one.receive, one.send)
        assert one.status == 200
    one = Connection(http())
    with pytest.raises(RateLimited):
        await router(one.scope, one.receive, one.send)
    assert one.sent == []


def test_a_rules_facts_are_the_routes() -> None:
    rule = Rule("writes", "1/m", match={"method": "POST", "path": "/items"})

    @endpoint_ratelimit(rule)
    async def both(request: Request) -> Response:
        return PlainTextResponse("ok")

    client = TestClient(Starlette(routes=[Mount("/api", routes=[Route("/items", both, methods=["GET", "POST"])])]))
    assert codes(client, 2, "/api/items") == [200, 200]
    assert codes(client, 2, "/api/items", "POST") == [200, 429]


@pytest.mark.parametrize("by", ["application", "mount", "route"])
def test_the_middleware_in_each_of_starlettes_places(by: str) -> None:
    async def bare(request: Request) -> Response:
        return PlainTextResponse("ok")

    def middleware(prefix: str) -> list[Middleware]:
        return [Middleware(RateLimitMiddleware, paths=[PathRule(prefix, "1/m")])]

    if by == "application":
        made = Starlette(routes=[Mount("/api", routes=[Route("/x", bare)])], middleware=middleware("/api/x"))
    elif by == "mount":
        made = Starlette(routes=[Mount("/api", routes=[Route("/x", bare)], middleware=middleware("/x"))])
    else:
        made = Starlette(routes=[Mount("/api", routes=[Route("/x", bare, middleware=middleware("/x"))])])
    assert codes(TestClient(made), 2, "/api/x") == [200, 429]


def test_an_application_served_below_a_prefix_is_limited_by_its_own_paths() -> None:
    made = app(middleware=[Middleware(RateLimitMiddleware, paths=[PathRule("/items", "1/m")])])
    assert codes(TestClient(made, root_path="/prefix"), 2, "/items", "DELETE") == [200, 429]


ORIGIN = {"Origin": "https://example.com"}
PREFLIGHT = {**ORIGIN, "Access-Control-Request-Method": "GET"}


@pytest.mark.parametrize("outside", [False, True])
def test_cors_middleware_outside_and_inside(outside: bool) -> None:
    cors = Middleware(CORSMiddleware, allow_origins=["https://example.com"], expose_headers=["X-Own"])
    limits = Middleware(RateLimitMiddleware, paths=[PathRule("/", "2/m")])
    client = TestClient(app(middleware=[cors, limits] if outside else [limits, cors]))
    assert codes(client, 3, "/", "OPTIONS", headers=PREFLIGHT) == [200] * 3
    allowed = client.get("/", headers=ORIGIN)
    assert allowed.headers["access-control-allow-origin"] == "https://example.com"
    client.get("/", headers=ORIGIN)
    denied = client.get("/", headers=ORIGIN)
    assert denied.status_code == 429
    # A browser shows a denial to scripts only if CORSMiddleware is outside, and has seen it.
    assert (denied.headers.get("access-control-allow-origin") == "https://example.com") is outside
    assert "Retry-After" in denied.headers["access-control-expose-headers"] or outside


def test_a_handshake_is_refused_and_messages_are_answered_by_a_frame() -> None:
    client = TestClient(app())
    for _ in range(2):
        with client.websocket_connect("/hello") as socket:
            assert socket.receive_text() == "hello"
    for path, accepted in [("/hello", 0), ("/guarded", 1)]:
        for _ in range(accepted):
            with client.websocket_connect(path):
                pass
        with pytest.raises(Exception) as refused, client.websocket_connect(path):  # noqa: PT011
            raise AssertionError("it was accepted")
        assert refused.value.status_code == 429  # type: ignore[attr-defined]
        assert refused.value.headers["retry-after"] == "60"  # type: ignore[attr-defined]
    with client.websocket_connect("/talk") as socket:
        for word in ("a", "b"):
            socket.send_text(word)
            assert socket.receive_text() == word
        for _ in range(2):
            socket.send_text("c")
            assert socket.receive_json() == DENIAL


def test_without_the_extension_the_handshake_is_closed_with_the_code() -> None:
    async def without(scope: Any, receive: Any, send: Any) -> None:
        scope.get("extensions", {}).clear()
        await app()(scope, receive, send)

    with isolated(overrides={}):
        client = TestClient(without)
        for _ in range(2):
            with client.websocket_connect("/hello"):
                pass
        with pytest.raises(WebSocketDisconnect) as refused, client.websocket_connect("/hello"):
            pass
    assert refused.value.code == 4029


def test_messages_are_limited_one_by_one(limiter: Limiter) -> None:
    async def chat(websocket: WebSocket) -> None:
        await websocket.accept()
        async for text in websocket.iter_text():
            if await check_ws_rate_limit(websocket, rate="2/m"):
                continue
            if await check_ws_rate_limit(websocket, "AI_ANALYSIS", send_message=False, cost=len(text)):
                await websocket.send_text("silent")
                continue
            await websocket.send_text(text)

    client = TestClient(Starlette(routes=[WebSocketRoute("/{room}", chat)]))
    with client.websocket_connect("/a") as socket, client.websocket_connect("/b") as same:
        found = []
        for one, text in [(socket, "hi"), (same, "long text"), (socket, "c")]:
            one.send_text(text)
            found.append(one.receive_text())
        assert found[:2] == ["hi", "silent"]
        assert '"RATE_LIMITED"' in found[2]
        with isolated(disable=True):
            socket.send_text("d")
            assert socket.receive_text() == "d"


async def test_a_socket_that_is_gone_is_limited_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    class Gone(WebSocket):
        error: Exception

        async def send_text(self, data: str) -> None:
            raise self.error

    scope = {"type": "websocket", "path": "/", "headers": []}
    one = Connection(scope)
    socket = Gone(scope, one.receive, one.send)
    for error, level in [(OSError(), None), (WebSocketDisconnect(1006), None), (RuntimeError("not open"), "WARNING")]:
        caplog.clear()
        socket.error = error
        assert await check_ws_rate_limit(socket, rate="0/m", group="x")
        assert [one.levelname for one in caplog.records if one.name == "ratelimit.asgi"] == ([level] if level else [])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (lambda: endpoint_ratelimit(), "give either a rule"),
        (lambda: endpoint_ratelimit("NOTHING"), "unknown"),
        (lambda: endpoint_ratelimit("AI_QUERY", user="ada"), "user='ada' is not a function"),
        (lambda: endpoint_ratelimit("AI_QUERY")(Items), "decorate the methods of a class"),
        (lambda: endpoint_ratelimit("AI_QUERY")(7), "is not a function"),  # type: ignore[type-var]
    ],
)
def test_what_cannot_be_used_is_an_error_at_once(given: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        given()


async def test_a_call_without_a_connection_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match="was called without a Request or WebSocket"):
        await answer("nothing")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="was called without a Request or WebSocket"):
        threaded("nothing")  # type: ignore[arg-type]


def test_a_user_that_has_to_be_awaited_needs_an_async_endpoint() -> None:
    async def who(request: Any) -> Any: ...

    @endpoint_ratelimit(rate="1/m", user=who)
    async def one(request: Request) -> Response:
        return PlainTextResponse("ok")

    @endpoint_ratelimit(rate="1/m", user=lambda request: who(request))
    def other(request: Request) -> Response:
        return PlainTextResponse("ok")

    client = TestClient(Starlette(routes=[Route("/", one), Route("/other", other)]))
    assert codes(client, 2) == [200, 429]
    with pytest.raises(ConfigurationError, match="has to be awaited"):
        client.get("/other")
