"""Who is calling, from whatever a GraphQL server puts in `info.context`.

Known, alone or as the `request` of a context (an attribute or a key):
- anything with Django's `META`;
- an ASGI `scope`, or a `consumer` with one (Starlette, FastAPI, Quart, Litestar, Channels);
- a WSGI `environ` (Flask, Werkzeug), or the environ or the scope itself;
- any object or mapping with `headers`, an address (`remote_addr`, `remote`, `ip`, ASGI's `client`) or a `user`.

A `user` or `limit_token` (a token that the application has accepted) of the context counts before one of its
request. Callers that a context tells nothing of cannot be told apart: all share the budget of the unknown address,
which is logged once for each kind of context.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

from ratelimit import Identity
from ratelimit.addresses import UNKNOWN, EnvironHeaders, Header, environ_headers
from ratelimit.identity import resolve
from ratelimit.settings import Settings

logger = logging.getLogger("ratelimit.graphql")

_ADDRESS_NAMES = ("remote_addr", "remote", "ip")


class Caller(NamedTuple):
    """The facts about a caller: header lines in order, the address the server saw, the user object or id, a token."""

    headers: Iterable[Header] = ()
    peer: str | None = None
    user: Any = None
    token: str | None = None

    def __repr__(self) -> str:  # neither token nor headers, which may hold one
        return f"<Caller peer={self.peer!r} user={self.user!r}>"


def identify(context: Any, settings: Settings) -> Identity:
    """The caller behind a context, as the engine counts it."""
    return _resolved(caller_of(context), context, settings)


async def aidentify(context: Any, settings: Settings) -> Identity:
    """`identify` for an event loop, which no database query may block."""
    caller = caller_of(context)
    await _load(caller.user)
    return _resolved(caller, context, settings)


def _resolved(caller: Caller, context: Any, settings: Settings) -> Identity:
    headers = caller.headers if isinstance(caller.headers, EnvironHeaders) else _Readable(caller.headers)
    identity = resolve(headers, caller.peer, caller.user, caller.token, settings=settings)
    if identity.ip == UNKNOWN and identity.user is None and identity.token is None:
        _warn_unknown(f"{type(context).__module__}.{type(context).__qualname__}")
    return identity


def request_of(context: Any) -> Any:
    """What stands for the request: the context's own `request`, else the context itself."""
    environ, scope = _shape(context)
    if environ is not None or scope is not None:
        return context
    request = _entry(context, "request")
    return context if request is None else request


def caller_of(context: Any) -> Caller:
    """What a context tells of the caller; a context of an unknown kind tells nothing."""
    caller = _connection(context)
    if caller is not None:
        return caller
    request = _entry(context, "request")
    own = _plain(context)
    caller = own if request is None else _connection(request) or _plain(request) or own
    if own is None or caller is None or own is caller:
        return caller or Caller()
    user = caller.user if own.user is None else own.user
    return caller._replace(user=user, token=own.token or caller.token)


def _connection(request: Any) -> Caller | None:
    """The caller of a request whose shape leaves no doubt."""
    environ, scope = _shape(request)
    if environ is not None:
        token = _text(_entry(request, "limit_token"))
        peer = _text(environ.get("REMOTE_ADDR"))
        # Django's request has both under ASGI; its environ may make one variable of two headers' names.
        headers = environ_headers(environ) if scope is None else scope.get("headers") or ()
        return Caller(headers, peer, _entry(request, "user"), token)
    if scope is not None:
        token = _text(_probe(request, "limit_token")) or _text(scope.get("limit_token"))
        # Not request.user: Starlette's insists on its middleware.
        return Caller(scope.get("headers") or (), _host(scope.get("client")), scope.get("user"), token)
    return None


def _shape(request: Any) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """The environ (Django's META is one) and the scope of `request`, which most kinds have one of; None for what it has not."""
    meta = _probe(request, "META")
    scope = _scope(request)
    if _is_mapping(meta):
        return meta, scope
    if scope is not None:
        return None, scope
    environ = request if _is_mapping(request) else _probe(request, "environ")
    return (environ if _is_mapping(environ) and "REQUEST_METHOD" in environ else None), None


def _scope(request: Any) -> Mapping[str, Any] | None:
    for holder in (request, _probe(request, "consumer")):
        scope = _probe(holder, "scope")
        if _is_mapping(scope):
            return scope
    if _is_mapping(request) and request.get("type") in ("http", "websocket") and "headers" in request:
        return request
    return None


def _plain(source: Any) -> Caller | None:
    """The caller of an object or mapping that has some of `headers`, an address, a user and a token."""
    headers = _fact(source, "headers")
    if callable(getattr(headers, "items", None)):
        headers = headers.items()
    if isinstance(headers, (str, bytes)) or not isinstance(headers, Iterable):
        headers = None
    addresses = (_text(_fact(source, name)) for name in _ADDRESS_NAMES)
    peer = next(filter(None, addresses), None) or _host(_fact(source, "client"))
    user, token = _entry(source, "user"), _text(_entry(source, "limit_token"))
    if headers is None and peer is None and user is None and token is None:
        return None
    return Caller(headers or (), peer, user, token)


class _Readable:
    """Header lines, those left out that are no pair of texts."""

    __slots__ = ("_lines",)

    def __init__(self, lines: Iterable[Any]) -> None:
        self._lines = lines

    def __iter__(self) -> Iterator[Header]:
        lines = self._lines if isinstance(self._lines, Iterable) else ()
        for line in lines:
            if (
                isinstance(line, (tuple, list))
                and len(line) == 2
                and all(isinstance(part, (str, bytes)) for part in line)
            ):
                yield line[0], line[1]


def _host(client: Any) -> str | None:
    """The host of ASGI's `client`, a (host, port) pair. A text under that name is an application's own affair."""
    return _text(client[0]) if isinstance(client, (tuple, list)) and client else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _entry(source: Any, name: str) -> Any:
    """A key of a mapping, else an attribute; None without one. A property may raise.

    Some requests are both: aiohttp's is a mapping of what the application noted, and knows its caller as attributes.
    """
    if _is_mapping(source) and name in source:
        return source[name]
    return None if type(source) is dict else getattr(source, name, None)


def _fact(source: Any, name: str) -> Any:
    """`_entry` of what a client or a server said, which is absent if it cannot be read."""
    try:
        return _entry(source, name)
    except Exception:
        return None


def _is_mapping(value: Any) -> TypeGuard[Mapping[str, Any]]:
    # Nearly all of them are plain ones, which need no question to the ABC.
    return type(value) is dict or isinstance(value, Mapping)


def _probe(source: Any, name: str) -> Any:
    """An attribute that tells one kind of object from another; some kinds raise when asked for another's."""
    try:
        return getattr(source, name, None)
    except Exception:
        return None


async def _load(user: Any) -> None:
    """Have Django's lazy `request.user` looked up in a thread: the first question to it is a database query.

    Not by `request.auser`, which knows nothing of a user that other middleware has put on the request.
    """
    functional = sys.modules.get("django.utils.functional")
    if functional is None or not isinstance(user, functional.LazyObject):
        return
    if user._wrapped is functional.empty:
        from asgiref.sync import sync_to_async

        await sync_to_async(lambda: getattr(user, "is_authenticated", None))()


@lru_cache(maxsize=256)  # the cache is what makes it one warning for each kind
def _warn_unknown(kind: str) -> None:
    logger.warning(
        "a GraphQL context of type %s tells no caller: all of its callers share the budget of the unknown "
        "address; put the request in the context, or give the limit a key",
        kind,
    )
