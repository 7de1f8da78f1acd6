"""A view that explains to the requester what its own request counts as.

    path("limits/", explain_view)                        # or aexplain_view; {"paths": PATHS} to look paths up

Rules:
- Not found unless `RATELIMIT_EXPLAIN` is on; never kept by a cache.
- Nothing in the request names another caller: `rule`, `path` and `method` in the query say what is asked about, not for whom.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, Final

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed

from ratelimit import ConfigurationError, Limiter, get_limiter
from ratelimit.explain import aexplain, explain, known_rule
from ratelimit.explanation import Explanation
from ratelimit.paths import PathRules
from ratelimit_django.identity import afound_user, request_headers
from ratelimit_django.paths import host_of, path_limits

Paths = PathRules | Callable[[], PathRules | None] | None
"""The project's path rules, or a function that gives them when they are asked for."""

_METHODS: Final = ("GET", "HEAD")


def explain_view(request: HttpRequest, paths: Paths = None) -> HttpResponse:
    """What this request counts as: address, identity, and with `?rule=` or `?path=` (and `method=`) the budget it spends.

    JSON, or text for `Accept: text/plain`. Works under WSGI and ASGI; `aexplain_view` does not leave the event loop.
    """
    limiter = _limiter()
    if request.method not in _METHODS:
        return _private(HttpResponseNotAllowed(_METHODS))
    try:
        asked = _asked(request, limiter, paths)
    except ConfigurationError as error:
        return _refusal(error)
    return _answer(request, explain(*_of(request, getattr(request, "user", None)), limiter=limiter, **asked))


async def aexplain_view(request: HttpRequest, paths: Paths = None) -> HttpResponse:
    """`explain_view` for an event loop."""
    limiter = _limiter()
    if request.method not in _METHODS:
        return _private(HttpResponseNotAllowed(_METHODS))
    try:
        asked = _asked(request, limiter, paths)
    except ConfigurationError as error:
        return _refusal(error)
    return _answer(request, await aexplain(*_of(request, await afound_user(request)), limiter=limiter, **asked))


def configured_paths() -> PathRules | None:
    """The path rules of the project's settings, for a view that is given none."""
    return path_limits().rules


def _limiter() -> Limiter:
    limiter = get_limiter()
    if not limiter.settings.explain:
        raise Http404("RATELIMIT_EXPLAIN is off")
    return limiter


def _of(request: HttpRequest, user: Any) -> tuple[Any, str | None, Any, str | None]:
    """What tells who is calling, as for any limit."""
    return request_headers(request), request.META.get("REMOTE_ADDR"), user, getattr(request, "limit_token", None)


def _asked(request: HttpRequest, limiter: Limiter, paths: Paths) -> dict[str, Any]:
    rule, path = request.GET.get("rule"), request.GET.get("path")
    method = request.GET.get("method", "GET").upper()
    found = paths() if callable(paths) else paths or configured_paths()
    other = copy.copy(request)  # what callables of a path's rule are asked about
    if path is not None:
        other.path = other.path_info = path
        other.method = method
    return {
        "rule": None if rule is None else known_rule(rule, limiter),
        "paths": found,
        "path": path,
        "method": method,
        "host": host_of(request),
        "arguments": lambda name: (f"path:{name}", other),
    }


def _answer(request: HttpRequest, found: Explanation) -> HttpResponse:
    if request.get_preferred_type(["application/json", "text/plain"]) == "text/plain":
        return _private(HttpResponse(f"{found}\n", content_type="text/plain; charset=utf-8"))
    return _private(HttpResponse(json.dumps(found.as_dict(), indent=2), content_type="application/json"))


def _refusal(error: ConfigurationError) -> HttpResponse:
    body = json.dumps({"error": {"code": "BAD_REQUEST", "message": str(error)}})
    return _private(HttpResponse(body, status=400, content_type="application/json"))


def _private(response: HttpResponse) -> HttpResponse:
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
