"""Who stands at the other end of a socket, and where a consumer's own budgets are counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Protocol

from channels.consumer import AsyncConsumer, SyncConsumer
from channels.db import database_sync_to_async
from django.utils.functional import LazyObject, empty

from ratelimit import Identity
from ratelimit.asgi import scope_facts, scope_identity
from ratelimit.settings import Settings


class Consumer(Protocol):
    """What the checks need of a consumer: its ASGI scope, and a way to send."""

    @property
    def scope(self) -> Any: ...

    @property
    def send(self) -> Callable[..., Any]: ...


async def aidentify(scope: MutableMapping[str, Any], settings: Settings) -> Identity:
    """`scope_identity` for an event loop: a user that Django has not loaded yet is a database query, made in a thread."""
    user = scope.get("user")
    if isinstance(user, LazyObject) and user.__dict__["_wrapped"] is empty:
        identity: Identity = await database_sync_to_async(scope_identity)(scope, settings)
        return identity
    return scope_identity(scope, settings)


def facts_of(consumer: Consumer, *_: Any, **__: Any) -> Mapping[str, Any]:
    """What rules may know of the connection that `consumer` serves, whatever its method was given."""
    return scope_facts(consumer.scope)


def own_group(consumer: Consumer) -> str:
    """Where a `rate=` of this consumer counts: different classes never share a budget by accident."""
    kind = type(consumer)
    return f"websocket:{kind.__module__}.{kind.__qualname__}"


def is_asynchronous(consumer: object) -> bool:
    """Whether the consumer's methods are coroutines: Channels derives the synchronous kind from the other one."""
    return isinstance(consumer, AsyncConsumer) and not isinstance(consumer, SyncConsumer)
