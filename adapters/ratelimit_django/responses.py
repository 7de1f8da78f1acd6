"""What a denied request is answered, and what every response says about the limit."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any, Final, TypeVar

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from ratelimit import Decision, RateLimitExceeded
from ratelimit.headers import error_body
from ratelimit_django.conf import denial_view

T = TypeVar("T")

_REQUEST_ID_HEADERS: Final = ("X-Request-ID", "X-Correlation-ID")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+/=@-]{0,127}")
_DENIED: Final = frozenset({429, 503})


def denied_response(request: HttpRequest, decision: Decision, style: str = "none") -> HttpResponseBase:
    """The answer to a denied request: that of `RATELIMIT_VIEW`, else status 429 and the error as JSON.

    `style` is that of the limit headers ("none", "ietf" or "x").
    """
    view = denial_view()
    if view is None:
        response: HttpResponseBase = _too_many_requests(request, decision)
    elif is_async(view):
        response = async_to_sync(view)(request, RateLimitExceeded(decision))
    else:
        response = view(request, RateLimitExceeded(decision))
    return add_headers(response, decision, style)


async def adenied_response(request: HttpRequest, decision: Decision, style: str = "none") -> HttpResponseBase:
    """`denied_response` for an async view."""
    view = denial_view()
    if view is None:
        response: HttpResponseBase = _too_many_requests(request, decision)
    elif is_async(view):
        response = await view(request, RateLimitExceeded(decision))
    else:
        response = await sync_to_async(view)(request, RateLimitExceeded(decision))
    return add_headers(response, decision, style)


def add_headers(response: T, decision: Decision, style: str) -> T:
    """`response` with the limit's headers, those that it has already left as they are.

    `Retry-After` goes with a refusal only: a view that serves a limited request all the same sends none.
    """
    if decision.allowed and style == "none":  # most responses say nothing of a limit
        return response
    if not isinstance(response, HttpResponseBase):
        return response
    refused = response.status_code in _DENIED
    for name, value in decision.headers(style).items():
        if refused or name != "Retry-After":
            response.headers.setdefault(name, value)
    if refused and not decision.allowed:
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.setdefault("Access-Control-Expose-Headers", "Retry-After")
    return response


def is_async(view: Callable[..., Any]) -> bool:
    """Whether calling `view` gives a coroutine: a function, a marked one, or an object whose `__call__` is async."""
    if iscoroutinefunction(view):
        return True
    # A function's own __call__ is not worth the look, nor a partial's.
    return not isinstance(view, (FunctionType, partial)) and iscoroutinefunction(type(view).__call__)


def _too_many_requests(request: HttpRequest, decision: Decision) -> JsonResponse:
    return JsonResponse(error_body(decision, _request_id(request)), status=429)


def _request_id(request: HttpRequest) -> str | None:
    """The id that a proxy or a middleware gave the request; None if it is missing or looks like anything else."""
    for name in _REQUEST_ID_HEADERS:
        value = request.META.get(f"HTTP_{name.upper().replace('-', '_')}")
        if isinstance(value, str) and _REQUEST_ID.fullmatch(value):
            return value
    return None
