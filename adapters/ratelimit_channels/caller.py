"""Who stands at the other end of a socket, and where a consumer's own budgets are counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from channels.db import database_sync_to_async
from django.utils.functional import LazyObject, empty

from ratelimit import Identity
from ratelimit.identity import resolve
from ratelimit.settings import Settings

PROTOCOL = "websocket"
"""What the log calls the protocol."""


class Consumer(Protocol):
    """What the checks need of a consumer: its ASGI scope, and a way to send."""

    @property
    def scope(self) -> Mapping[str, Any]: ...

    @property
    def send(self) -> Callable[..., Any]: ...


def identify(scope: Mapping[str, Any], settings: Settings) -> Identity:
    """The caller behind a WebSocket scope: its user, its address, and its token (`scope["limit_token"]`).

    A scope may lack `client` (unix sockets, test communicators), `user` (no auth middleware) or both. A token is there
    once the application has accepted one; what a client merely sent never is.
    """
    client = scope.get("client")
    peer = client[0] if client else None
    return resolve(scope.get("headers") or (), peer, scope.get("user"), scope.get("limit_token"), settings=settings)


async def aidentify(scope: Mapping[str, Any], settings: Settings) -> Identity:
    """`identify` for an event loop: a user that Django has not loaded yet is a database query, made in a thread."""
    user = scope.get("user")
    if isinstance(user, LazyObject) and user.__dict__["_wrapped"] is empty:
        identity: Identity = await database_sync_to_async(identify)(scope, settings)
        return identity
    return identify(scope, settings)


def facts(scope: Mapping[str, Any]) -> Mapping[str, Any]:
    """What rules may know of a connection: its path, as the router sees it."""
    path = scope.get("path")
    return {} if path is None else {"path": path.removeprefix(scope.get("root_path") or "")}


def facts_of(consumer: Consumer) -> Mapping[str, Any]:
    """`facts` of the connection that `consumer` serves."""
    return facts(consumer.scope)


def own_group(consumer: Consumer) -> str:
    """Where a `rate=` of this consumer counts: different classes never share a budget by accident."""
    kind = type(consumer)
    return f"websocket:{kind.__module__}.{kind.__qualname__}"
