"""Who is behind a request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.utils.functional import LazyObject, empty

from ratelimit import Identity, get_limiter, shapes
from ratelimit.addresses import Header, environ_headers
from ratelimit.identity import resolve, resolve_address
from ratelimit.settings import Settings


def request_identity(request: HttpRequest, *, settings: Settings | None = None, user: bool = True) -> Identity:
    """The caller of `request`: its address behind the trusted proxies, its user, its token.

    The user is `request.user`, where a middleware has set it; reading it may cost a session and a database query.
    `user=False` leaves it unread. The token is `request.limit_token`, where the application has put one that it has
    accepted. `settings` are those of the process's limiter unless given.
    """
    return _resolve(request, getattr(request, "user", None) if user else None, settings)


async def arequest_identity(request: HttpRequest, *, settings: Settings | None = None, user: bool = True) -> Identity:
    """`request_identity` for an event loop, which it never blocks: an unread user is loaded by `request.auser()`."""
    return _resolve(request, await afound_user(request) if user else None, settings)


def request_headers(request: HttpRequest) -> Iterable[Header]:
    """The header lines of `request`, for `resolve`.

    Of an ASGI request those that the server saw: in `META` another header could pass for the proxy's, for some releases of
    Django make one variable of `x_forwarded_for` and `X-Forwarded-For`.
    """
    scope = getattr(request, "scope", None)
    return environ_headers(request.META) if scope is None else scope.get("headers") or ()


async def afound_user(request: HttpRequest) -> Any:
    """The user of `request`, loaded by `request.auser()` if nobody has read it yet."""
    user = getattr(request, "user", None)
    if not isinstance(user, LazyObject) or user.__dict__["_wrapped"] is not empty:
        return user  # set or read before, or nobody: what the application sees is what counts
    auser = getattr(request, "auser", None)
    if auser is not None:
        return await auser()
    return await sync_to_async(_loaded)(user)


def _resolve(request: HttpRequest, user: Any, settings: Settings | None) -> Identity:
    settings = settings or get_limiter().settings
    peer, token = request.META.get("REMOTE_ADDR"), getattr(request, "limit_token", None)
    if user is None and token is None:
        found = resolve_address(peer, settings)
        if found is not None:
            return found
    headers = request_headers(request) if settings.proxied or shapes.looking else ()
    return resolve(headers, peer, user, token, settings=settings)


def _loaded(user: Any) -> Any:
    bool(user.is_authenticated)
    return user
