"""A site for the tests that run a real server: limits by path, views of every kind, a clock that stands still."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

from django.conf import settings

from ratelimit.paths import PathRule

if not settings.configured:
    settings.configure(
        SECRET_KEY="for this test",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        USE_TZ=True,
        INSTALLED_APPS=["ratelimit_django"],
        MIDDLEWARE=["ratelimit_django.middleware.PathRateLimitMiddleware"],
        RATELIMIT_STORE=os.environ.get("TEST_STORE", "memory://"),
        RATELIMIT_HEADERS="ietf",
        RATELIMIT_PATHS=[
            PathRule("/", "90/m", name="all"),
            PathRule("/login", "2/m", name="login"),
            PathRule("/stream", "2/m", name="stream"),
            PathRule("/events", "2/m", name="events"),
        ],
        RATELIMIT_PATHS_EXEMPT=["/release"],
    )

import django

django.setup()

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path, re_path
from django.views import View

from ratelimit import Limiter, set_limiter
from ratelimit.testing import FakeClock
from ratelimit_django import view_ratelimit

set_limiter(Limiter(clock=FakeClock()))
_released = asyncio.Event()


async def login(request: HttpRequest) -> HttpResponse:
    return HttpResponse("come in")


@view_ratelimit(rate="1/m")
async def coroutine(request: HttpRequest) -> HttpResponse:
    return HttpResponse("coroutine")


@view_ratelimit(rate="1/m")
def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse("plain")


class Coroutine(View):
    @view_ratelimit(rate="1/m")
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("Coroutine")


def stream(request: HttpRequest) -> StreamingHttpResponse:
    def parts() -> Iterator[bytes]:
        yield from (b"part %d\n" % number for number in range(3))

    return StreamingHttpResponse(parts(), content_type="text/plain")


async def events(request: HttpRequest) -> StreamingHttpResponse:
    async def parts() -> AsyncIterator[bytes]:
        yield b"data: first\n\n"
        await _released.wait()
        yield b"data: second\n\n"

    return StreamingHttpResponse(parts(), content_type="text/event-stream")


async def release(request: Any) -> HttpResponse:
    _released.set()
    return HttpResponse("released")


urlpatterns = [
    re_path(r"^/*login/?$", login),
    path("coroutine", coroutine),
    path("plain", plain),
    path("Coroutine", Coroutine.as_view()),
    path("stream", stream),
    path("events", events),
    path("release", release),
]
application = get_asgi_application()
wsgi_application = get_wsgi_application()
