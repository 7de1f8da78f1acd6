"""What a denied request is answered, and what every response says about the limit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any, Final, TypeVar

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from ratelimit import Decision, RateLimitExceeded, get_limiter
from ratelimit.answers import denied_answer, exposed, request_id
from ratelimit.settings import Settings
from ratelimit_django.conf import denial_view

T = TypeVar("T")

_COMPLETE: Final = "_ratelimit_complete"
"""Marks a response that has all its headers: `RATELIMIT_ANSWER` may have left some out."""
_DENIED: Final = frozenset({429, 503})


def denied_response(request: HttpRequest, decision: Decision, *, settings: Settings | None = None) -> HttpResponseBase:
    """The answer to a denied request: that of `RATELIMIT_VIEW`, else that of every adapter: status 429 and the error as JSON
    or problem details, unless `RATELIMIT_ANSWER` says otherwise.

    `settings` are those of the process's limiter unless given; they say which limit headers there are.
    """
    settings = settings or get_limiter().settings
    view = denial_view()
    if view is None:
        return _answered(request, decision, settings)
    view = async_to_sync(view) if is_async(view) else view
    response: HttpResponseBase = view(request, RateLimitExceeded(decision))
    return add_headers(response, decision, settings.headers)


async def adenied_response(
    request: HttpRequest, decision: Decision, *, settings: Settings | None = None
) -> HttpResponseBase:
    """`denied_response` for an async view."""
    settings = settings or get_limiter().settings
    view = denial_view()
    if view is None:
        return _answered(request, decision, settings)
    view = view if is_async(view) else sync_to_async(view)
    response: HttpResponseBase = await view(request, RateLimitExceeded(decision))
    return add_headers(response, decision, settings.headers)


def add_headers(response: T, decision: Decision, style: str) -> T:
    """`response` with the limit's headers, those that it has already left as they are.

    `Retry-After` goes with a refusal only: a view that serves a limited request all the same sends none.
    """
    if decision.allowed and style == "none":  # most responses say nothing of a limit
        return response
    if not isinstance(response, HttpResponseBase) or hasattr(response, _COMPLETE):
        return response
    refused = response.status_code in _DENIED
    shown = decision.headers(style)
    for name, value in shown.items():
        if refused or name != "Retry-After":
            response.headers.setdefault(name, value)
    if refused and not decision.allowed:
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.setdefault("Access-Control-Expose-Headers", exposed(shown))
    return response


def header_of(request: HttpRequest, name: str) -> str | None:
    """The value of a request's header, None without one."""
    value: str | None = request.META.get(f"HTTP_{name.upper().replace('-', '_')}")
    return value


def is_async(view: Callable[..., Any]) -> bool:
    """Whether calling `view` gives a coroutine: a function, a marked one, or an object whose `__call__` is async."""
    if iscoroutinefunction(view):
        return True
    # A function's own __call__ is not worth the look, nor a partial's.
    return not isinstance(view, (FunctionType, partial)) and iscoroutinefunction(type(view).__call__)


def _answered(request: HttpRequest, decision: Decision, settings: Settings) -> HttpResponse:
    status, headers, body = denied_answer(decision, settings, request_id(partial(header_of, request)))
    response = HttpResponse(body, status=status, headers=headers)
    setattr(response, _COMPLETE, True)
    return response
