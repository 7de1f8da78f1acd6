"""A site behind `PathRateLimitMiddleware`: its views tell what they were given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

from ratelimit import Rule
from ratelimit_django import view_ratelimit

SHARED = Rule("shared", "3/m", by="ip")
CALLS: list[str] = []
"""The paths of the requests that reached a view."""


def told(request: Any, **_: Any) -> JsonResponse:
    CALLS.append(request.path_info)
    decision = request.limit_decision
    figures = None if decision is None else [decision.rule, decision.remaining]
    return JsonResponse({"limited": request.limited, "decision": figures, "key": request.limit_key})


async def atold(request: Any) -> JsonResponse:
    return told(request)


def posted(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.body)


def stream(request: HttpRequest) -> StreamingHttpResponse:
    def parts() -> Iterator[bytes]:
        for number in range(3):
            CALLS.append(f"part {number}")
            yield b"part %d\n" % number

    return StreamingHttpResponse(parts(), content_type="text/plain")


async def events(request: HttpRequest) -> StreamingHttpResponse:
    async def parts() -> AsyncIterator[bytes]:
        for number in range(3):
            await asyncio.sleep(0)
            CALLS.append(f"event {number}")
            yield b"data: %d\n\n" % number

    return StreamingHttpResponse(parts(), content_type="text/event-stream")


def own(request: HttpRequest) -> HttpResponse:
    return HttpResponse("own", status=429, headers={"Retry-After": "9", "X-RateLimit-Limit": "1"})


urlpatterns = [
    path("stream", stream),
    path("events", events),
    path("posted", posted),
    path("own", own),
    path("atold", atold),
    path("category", view_ratelimit("WRITE_HEAVY")(told)),
    path("acategory", view_ratelimit("WRITE_HEAVY")(atold)),
    path("dearer", view_ratelimit("WRITE_HEAVY", cost=2)(told)),
    path("twice", view_ratelimit("WRITE_HEAVY")(view_ratelimit("WRITE_HEAVY")(told))),
    path("ruled", view_ratelimit(SHARED)(told)),
    path("wide", view_ratelimit(rate="50/m")(told)),
    path("<path:rest>", told),
    path("", told),
]
