"""One limit, 1 a minute by address, in each kind of place where a server hands requests over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from wsgiref.util import setup_testing_defaults

from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

from ratelimit import Rate, get_limiter
from ratelimit.asgi import scope_identity
from ratelimit_django import request_identity, view_ratelimit

Client = tuple[str, int] | str | None
"""The other end: a pair as ASGI has it, a text for `REMOTE_ADDR`, or nothing at all."""
Lines = Sequence[tuple[str, str]]
Answer = tuple[int, str]
"""The status, and the caller as it was counted."""


@view_ratelimit(key="ip", rate="1/m", block=False)
def view(request: Any) -> HttpResponse:
    return HttpResponse(request_identity(request).key("ip"), status=429 if request.limited else 200)


@view_ratelimit(key="ip", rate="1/m", block=False)
async def coroutine(request: Any) -> HttpResponse:
    return HttpResponse(request_identity(request).key("ip"), status=429 if request.limited else 200)


urlpatterns = [path("", view), path("async", coroutine)]


async def plain(scope: Any, receive: Any, send: Any) -> None:
    limiter = get_limiter()
    identity = scope_identity(scope, limiter.settings)
    decision = await limiter.acheck(Rate.parse("1/m"), identity, key="ip")
    await send({"type": "http.response.start", "status": 200 if decision else 429, "headers": []})
    await send({"type": "http.response.body", "body": identity.key("ip").encode()})


def over_wsgi(lines: Lines, client: Client) -> Answer:
    environ: dict[str, Any] = {"PATH_INFO": "/"}
    setup_testing_defaults(environ)
    if client is not None:
        environ["REMOTE_ADDR"] = client if isinstance(client, str) else client[0]
    for name, value in lines:
        key = f"HTTP_{name.upper().replace('-', '_')}"
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    started: list[Any] = []
    body = b"".join(get_wsgi_application()(environ, lambda status, headers: started.append(status)))
    return int(started[0][:3]), body.decode()


async def _asgi(app: Any, lines: Lines, client: Client, path_: str) -> Answer:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": path_,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in lines],
        "client": (client, 0) if isinstance(client, str) else client,
    }
    communicator = ApplicationCommunicator(app, scope)
    await communicator.send_input({"type": "http.request"})
    start, body = [await communicator.receive_output(5) for _ in range(2)]
    await communicator.wait()
    return start["status"], body["body"].decode()


def over_asgi(lines: Lines, client: Client) -> Answer:
    return asyncio.run(_asgi(get_asgi_application(), lines, client, "/"))


def over_async(lines: Lines, client: Client) -> Answer:
    return asyncio.run(_asgi(get_asgi_application(), lines, client, "/async"))


def without_framework(lines: Lines, client: Client) -> Answer:
    return asyncio.run(_asgi(plain, lines, client, "/"))


PLACES: dict[str, Callable[[Lines, Client], Answer]] = {
    "Django, WSGI": over_wsgi,
    "Django, ASGI": over_asgi,
    "Django, ASGI, async": over_async,
    "ASGI": without_framework,
}
