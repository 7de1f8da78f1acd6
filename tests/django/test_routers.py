"""Every spelling that a real router serves meets the rule of the plain path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("litestar")
pytest.importorskip("rest_framework")

from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, URLResolver, include, path, re_path
from django.urls.resolvers import RegexPattern
from fastapi import FastAPI
from litestar import Litestar
from litestar import get as litestar_get
from rest_framework.urlpatterns import format_suffix_patterns
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from ratelimit.asgi import route_path
from ratelimit.paths import PathRule, PathRules

SPELLINGS = [
    *(
        "/login",
        "//login",
        "///login",
        "/login/",
        "/login//",
        "/login/.",
        "/./login",
        "/x/../login",
        "/login/..",
        "/login%00",
    ),
    *(
        "/login%0A",
        "/login%0a",
        "/login/%0A",
        "/login%0D",
        "/login%0D%0A",
        "/login%0A%0A",
        "/%0Alogin",
        "/login%0B",
        "/login%85",
    ),
    *(
        "/login%2F",
        "/%2Flogin",
        "/log%2Fin",
        "/%2e/login",
        "/login%2E",
        "/log%69n",
        "/%6Cogin",
        "/login%20",
        "/%20login",
    ),
    *(
        "/login;x=1",
        "/login;",
        "/login?x=1",
        "/login%3Fx",
        "/login%23",
        "/login.json",
        "/login.json/",
        "/login.api%0A",
        "/login.",
    ),
    *(
        "/LOGIN",
        "/Login",
        "/log\u0131n",
        "/logIn",
        "/\uff4cogin",
        "/login\u200b",
        "/logi\u0307n",
        "/LOGIN/",
        "//LOGIN%0A",
    ),
    *(
        "/api/login",
        "/api//login",
        "//api/login",
        "/api/login/",
        "/api/login%0A",
        "/api%0A/login",
        "/api%2Flogin",
        "/API/login",
    ),
    *("/api/LOGIN", "/api;x/login", "/api/./login", "/api/login.json", "/api/login//", "/api", "/api/", "/"),
]
METHODS = ["GET", "HEAD", "get", "Get"]


def served(request: HttpRequest, **kwargs: Any) -> HttpResponse:
    return HttpResponse("login")


async def starlette_login(request: Request) -> PlainTextResponse:
    return PlainTextResponse("login")


@litestar_get(["/login", "/api/login"])
async def litestar_login() -> str:
    return "login"


class _Urls:
    """Django's router with these patterns."""

    def __init__(self, patterns: Iterable[Any]) -> None:
        self._router = URLResolver(RegexPattern(r"^/"), list(patterns))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            self._router.resolve(scope["path"])
        except Resolver404:
            await send({"status": 404})
        else:
            await send({"status": 200})


def fastapi() -> Any:
    app = FastAPI()
    for where in ("/login", "/api/login"):
        app.get(where)(lambda: "login")
    return app


def mounted() -> list[Any]:
    return [Route("/login", starlette_login), Mount("/api", routes=[Route("/login", starlette_login)])]


ROUTERS: dict[str, tuple[Callable[[], Any], dict[str, bool]]] = {
    "django path": (lambda: _Urls([path("login", served), path("api/", include([path("login", served)]))]), {}),
    "django path/": (lambda: _Urls([path("login/", served), path("api/login/", served)]), {}),
    "django re_path": (
        lambda: _Urls([re_path(r"^login$", served), re_path(r"^api/", include([re_path("login$", served)]))]),
        {},
    ),
    "django loose": (lambda: _Urls([re_path(r"^/*(api/+)?login/*\n?$", served)]), {}),
    "django any case": (lambda: _Urls([re_path(r"(?i)^(api/)?login/?$", served)]), {"ignore_case": True}),
    "django formats": (
        lambda: _Urls(format_suffix_patterns([path("login", served), re_path(r"^api/login$", served)])),
        {"formats": True},
    ),
    "starlette": (lambda: Starlette(routes=mounted()), {}),
    "fastapi": (fastapi, {}),
    "litestar": (lambda: Litestar([litestar_login], openapi_config=None), {}),
}


async def status(app: Any, spelling: str, method: str) -> tuple[int, dict[str, Any]]:
    """What the router answers, and the scope it was given."""
    raw, _, query = spelling.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw, errors="replace"),
        "raw_path": raw.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost")],
        "client": ("203.0.113.7", 4711),
        "server": ("localhost", 80),
    }
    before, sent = dict(scope), []
    body = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        return body.pop() if body else await asyncio.Event().wait()  # nobody disconnects

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], before


@pytest.mark.parametrize("name", ROUTERS)
async def test_what_is_served_meets_the_rule(name: str) -> None:
    make, options = ROUTERS[name]
    app = make()
    rules = PathRules(
        [PathRule("/", "9/m"), PathRule("/login", "1/m"), PathRule("/api/login", "1/m", methods="GET")], **options
    )
    answered = []
    for spelling in SPELLINGS:
        for method in METHODS:
            code, scope = await status(app, spelling, method)
            assert code in (200, 307, 400, 404, 405), spelling
            if code == 200:
                answered.append(spelling)
                rule = rules.find(route_path(scope), method)
                assert rule is not None
                assert rule.name in ("/login", "GET /api/login"), (spelling, method)
    assert len(set(answered)) >= 3  # the table is not of what nobody serves
