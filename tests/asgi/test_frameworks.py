"""The middleware around applications of other frameworks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ratelimit import Policy, Rule
from ratelimit.testing import isolated
from ratelimit_asgi import PathRule, RateLimitMiddleware
from tests.asgi.raw import Connection, ask, http, ok, websocket

pytestmark = pytest.mark.usefixtures("limiter")


def test_litestar() -> None:
    pytest.importorskip("litestar")
    from litestar.exceptions import WebSocketDisconnect
    from litestar.testing import TestClient

    from tests.asgi.served_litestar import application

    with isolated(headers="x"), TestClient(application) as client:
        for user in ("ada", "bob"):
            found = [client.get("/items", headers={"x-verified": user}) for _ in range(3)]
            assert [one.status_code for one in found] == [200, 200, 429]
            assert found[0].text == f"user:{user}"
            assert [one.headers["x-ratelimit-remaining"] for one in found] == ["1", "0", "0"]
        assert found[2].json()["error"]["code"] == "RATE_LIMITED"
        with client.websocket_connect("/chat") as socket:
            assert socket.receive_text() == "hello"
        with pytest.raises(WebSocketDisconnect) as refused, client.websocket_connect("/chat"):
            pass
        assert refused.value.code == 4029  # its test client has no denial response
        assert client.get("/nothing").status_code == 404


def test_litestar_below_a_prefix() -> None:
    pytest.importorskip("litestar")
    from litestar import Litestar, get
    from litestar.middleware import DefineMiddleware
    from litestar.testing import TestClient

    @get(["/login", "/app/login"])
    async def login() -> str:
        return "ok"

    def codes(made: Any, *paths: str) -> list[int]:
        with TestClient(made, root_path="/app") as client:
            return [client.get(path).status_code for path in paths]

    paths = [PathRule("/login", "1/m"), PathRule("/app/login", "1/m")]
    # Its router finds the prefix anywhere in a path.
    outside: Any = RateLimitMiddleware(Litestar([login]), paths, exempt="/static")
    assert codes(outside, "/login", "/applogin", "/static/app/login", "/app/login") == [200, 429, 429, 429]
    # Its own middleware is given the path without the prefix, which is not to be taken from it again.
    inside = Litestar([login], middleware=[DefineMiddleware(RateLimitMiddleware, paths=paths)])
    assert codes(inside, "/app/app/login", "/app/app/login", "/applogin", "/app/login") == [200, 429, 429, 429]


async def test_channels_below_a_prefix() -> None:
    pytest.importorskip("channels")
    from channels.routing import URLRouter
    from django.urls import path

    async def chat(scope: Any, receive: Any, send: Any) -> None:
        await ok(scope, receive, send)

    app = RateLimitMiddleware(URLRouter([path("chat", chat)]), [PathRule("/chat", "1/m")])
    for given, refused in (("/app/chat", False), ("/appchat", True), ("/app//chat", True)):
        one = await ask(app, websocket(given, root_path="/app"))
        assert one.sent[0]["type"] == ("websocket.http.response.start" if refused else "websocket.accept")


def test_a_line_end_leads_past_no_rule() -> None:
    pytest.importorskip("starlette")
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route
    from starlette.testclient import TestClient

    search = Starlette(routes=[Route("/search", lambda request: PlainTextResponse("found"))])
    policy = Policy(Rule("search", "1/m", by="ip", match={"path": "/search"}))
    client = TestClient(RateLimitMiddleware(search, [PathRule("/", policy)]))
    assert [client.get(path).status_code for path in ("/search", "/search%0A")] == [200, 429]


def test_files_that_are_served_by_another_spelling(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    from starlette.applications import Starlette
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    (tmp_path / "big").mkdir()
    (tmp_path / "big" / "a.txt").write_text("much")
    files = Starlette(routes=[Mount("/files", StaticFiles(directory=tmp_path))])
    app = RateLimitMiddleware(files, [PathRule("/files/big", "2/m")], exempt="/files")
    paths = ["/files/big/a.txt", "/files/x/../big/a.txt", "/files/./big/a.txt", "/files//big/a.txt"]

    async def found() -> list[int]:
        return [(await ask(app, http(path))).status for path in paths]

    assert asyncio.run(found()) == [200, 200, 429, 429]


async def test_django() -> None:
    pytest.importorskip("django")
    from django.core.handlers.asgi import ASGIHandler
    from django.http import HttpRequest, HttpResponse
    from django.test import override_settings
    from django.urls import path

    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(request.body)

    class Urls:
        urlpatterns = [path("api/items", view)]

    with override_settings(ROOT_URLCONF=Urls, MIDDLEWARE=[]), isolated(headers="x"):
        app = RateLimitMiddleware(ASGIHandler(), [PathRule("/api", "2/m")], exempt="/static")
        for status in (200, 200, 429):
            one = Connection(
                http("/api/items", "POST", query_string=b""),
                [
                    {"type": "http.request", "body": b"a", "more_body": True},
                    {"type": "http.request", "body": b"b", "more_body": False},
                ],
            )
            await app(one.scope, one.receive, one.send)
            assert one.status == status
            assert one.headers["x-ratelimit-limit"] == "2"
            assert status == 429 or one.body == b"ab"
