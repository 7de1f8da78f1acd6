"""Views, and calls of them with requests that no middleware has seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory


def ok(request: HttpRequest) -> HttpResponse:
    """A view."""
    return HttpResponse("ok")


def get(path: str = "/", **meta: Any) -> HttpRequest:
    """A request as a view gets it when no middleware has seen it."""
    return RequestFactory().get(path, **meta)


def codes(view: Callable[..., Any], times: int, request: Callable[[], HttpRequest] = get) -> list[int]:
    """The status codes of so many calls of a sync view."""
    return [view(request()).status_code for _ in range(times)]


async def acodes(view: Callable[..., Any], times: int, request: Callable[[], HttpRequest] = get) -> list[int]:
    """The status codes of so many calls of an async view."""
    return [(await view(request())).status_code for _ in range(times)]


async def aok(request: HttpRequest, *args: Any) -> HttpResponse:
    """An async view."""
    await asyncio.sleep(0)
    return HttpResponse("ok")


class Person:
    """A user as the identity resolver sees one."""

    is_authenticated = True
    is_superuser = False

    def __init__(self, pk: int, **flags: bool) -> None:
        self.pk = pk
        self.__dict__.update(flags)


def by(user: Person | None, **meta: Any) -> Callable[[], HttpRequest]:
    """Makes requests of one user."""

    def request() -> HttpRequest:
        made = get(**meta)
        if user is not None:
            made.user = user  # type: ignore[assignment]
        return made

    return request
