"""Limits in Django Ninja: a throttle on the same engine, a decorator for async operations, and the answer of every adapter.

Rules:
- Ninja asks throttles without awaiting them, in the event loop for an async operation. There, waiting for a store would hold up
  every other request: a throttle refuses to, and stands as a decorator instead, which awaits.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from ninja.errors import HttpError
from ninja.throttling import BaseThrottle

from ratelimit import ConfigurationError, Decision, Limiter
from ratelimit.guard import Attributes
from ratelimit.plan import RuleLike
from ratelimit_django.callers import ViewKey
from ratelimit_django.noted import shown
from ratelimit_django.responses import add_headers, adenied_response, denied_response, is_async
from ratelimit_django.throttles import Authenticated, throttle_limit, throttled

Operation = TypeVar("Operation", bound=Callable[..., Any])


class RateLimitThrottle(BaseThrottle):
    """A limit on operations, in one of two places: `throttle=` of an API, a router or a sync operation, or as a decorator,
    below the operation's own or through `add_decorator`, for sync and async ones.

    `rule` is a category, a `Rule`, a `Policy` or the name of one, a budget that all who name it share; or a rate (`"10/m"`, a
    `Rate`), a budget for each operation (method and route), unless `group` names it. `key`, `cost` and `attributes` are as in
    `view_ratelimit`; functions are given (group, request).

    Raises `ConfigurationError` for what cannot be used, when it is made.
    """

    def __init__(
        self,
        rule: RuleLike,
        *,
        key: ViewKey = None,
        group: str | None = None,
        cost: int | Callable[..., int] = 1,
        attributes: Attributes | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        self._limit = throttle_limit(rule, key=key, group=group, cost=cost, attributes=attributes, limiter=limiter)
        # One throttle serves every request: what it said last is for the thread that asked.
        self._last = threading.local()

    def allow_request(self, request: HttpRequest) -> bool:
        """Whether the request may go on. Raises `ConfigurationError` in an event loop."""
        _refuse_loop()
        decision = throttled(self._limit, request, _group(request))
        self._last.wait = None if decision is None else decision.retry_after_seconds
        return decision is None or decision.allowed

    def wait(self) -> float | None:
        """Whole seconds until the request that this thread asked about could pass, rounded up; None if it never can."""
        found: int | None = getattr(self._last, "wait", None)
        return found

    def __call__(self, operation: Operation) -> Operation:
        """`operation`, limited: a function of a request, or what `add_decorator(..., mode="view")` and `decorate_view` give."""
        if inspect.isgeneratorfunction(operation) or inspect.isasyncgenfunction(operation):
            raise ConfigurationError(
                f"{operation!r} streams: its limit has to stand before it begins; write @decorate_view(limit), or "
                "add_decorator(limit, mode='view')"
            )
        limited = (self._async_form if is_async(operation) else self._sync_form)(operation)
        # Ninja reads parameters from the signature, and looks for the names in its types where it is defined.
        limited.__signature__ = _signature(operation)  # type: ignore[attr-defined]
        return limited  # type: ignore[return-value]

    def _sync_form(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(operation)
        def limited(request: Any, *args: Any, **kwargs: Any) -> Any:
            decision = self._limit.check(_seen(request), _group(request))
            if decision is not None and not decision.allowed:
                return denied_response(request, decision, settings=self._limit.settings)
            return self._with_headers(operation(request, *args, **kwargs), request, decision)

        return limited

    def _async_form(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(operation)
        async def limited(request: Any, *args: Any, **kwargs: Any) -> Any:
            decision = await self._limit.acheck(_seen(request), _group(request))
            if decision is not None and not decision.allowed:
                return await adenied_response(request, decision, settings=self._limit.settings)
            return self._with_headers(await operation(request, *args, **kwargs), request, decision)

        return limited

    def _with_headers(self, result: Any, request: Any, decision: Decision | None) -> Any:
        told = None if decision is None else shown(request)
        return result if told is None else add_headers(result, told, self._limit.settings.headers)


def exception_handler(request: HttpRequest, exc: Any) -> HttpResponseBase:
    """The answer of every adapter for what a `RateLimitThrottle` refused; Ninja's own for what another throttle did.

    Register it with the API: `api.add_exception_handler(Throttled, exception_handler)`.
    """
    decision = getattr(request, "limit_decision", None)
    if decision is None or decision.allowed:
        status = exc.status_code if isinstance(exc, HttpError) else 429
        return JsonResponse({"detail": str(exc)}, status=status)
    return denied_response(request, decision)


def _seen(request: HttpRequest) -> Any:
    return Authenticated(request)


def _group(request: HttpRequest) -> str:
    """The budget of an operation. The path itself would be another one for every object."""
    match = getattr(request, "resolver_match", None)
    return f"{request.method} /{match.route}" if match is not None else f"{request.method} ninja"


def _signature(operation: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(operation, eval_str=True)
    except NameError:  # of something that is defined later; Ninja says what it cannot read
        return inspect.signature(operation)


def _refuse_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigurationError(
        "throttle=RateLimitThrottle(...) on an async operation would hold up the event loop; write it as a decorator below "
        "the operation's (@api.get(...), then @limit), or api.add_decorator(limit, mode='view')"
    )
