"""`PathRateLimitMiddleware`: limits by path, before any view is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ratelimit import get_limiter
from ratelimit_django.noted import note, shown
from ratelimit_django.paths import path_limits
from ratelimit_django.responses import add_headers, adenied_response, denied_response


class PathRateLimitMiddleware:
    """Counts requests by `RATELIMIT_PATHS`, and answers denied ones without calling the view.

    Sets `request.limited`, `request.limit_decision` and `request.limit_key` as `view_ratelimit` does, and adds the limit
    headers to the response of whatever limit the request met, the view's own included. Callers are users only for what
    comes after `AuthenticationMiddleware`. At most one round trip for a request.

    Raises `ConfigurationError` for settings that cannot be used, when the application is loaded.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)
        path_limits()

    def __call__(self, request: HttpRequest) -> Any:
        if self._is_async:
            return self._acall(request)
        found = path_limits().find(request)
        if found is None:
            note(request, None)
        else:
            limit, group = found
            decision = limit.check(request, group)
            if decision is not None and not decision.allowed:
                return denied_response(request, decision, settings=limit.settings)
        return _with_headers(self.get_response(request), request)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        found = path_limits().find(request)
        if found is None:
            note(request, None)
        else:
            limit, group = found
            decision = await limit.acheck(request, group)
            if decision is not None and not decision.allowed:
                return await adenied_response(request, decision, settings=limit.settings)
        return _with_headers(await self.get_response(request), request)


def _with_headers(response: HttpResponseBase, request: Any) -> HttpResponseBase:
    decision = shown(request)
    return response if decision is None else add_headers(response, decision, get_limiter().settings.headers)
