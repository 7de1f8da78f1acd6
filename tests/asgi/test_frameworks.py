"""The middleware around applications of other frameworks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratelimit import Limiter
from ratelimit.testing import FakeClock, isolated
from ratelimit_asgi import PathRule, RateLimitMiddleware
from tests.asgi.raw import Connection, http


@pytest.fixture(autouse=True)
def process_limiter() -> Iterator[Limiter]:
    with isolated(clock=FakeClock()) as one:
        yield one


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
