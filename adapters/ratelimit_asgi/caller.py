"""Who is calling: what the application says of a connection, else what its scope knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable, iscoroutine
from typing import Any, TypeAlias

from ratelimit import ConfigurationError, Identity
from ratelimit.asgi import Scope, scope_identity
from ratelimit.settings import Settings

User: TypeAlias = Callable[[Any], Any | Awaitable[Any]]
"""Tells a user (an object or an id), an `Identity`, or None for the user that the scope knows."""


def identify(user: User | None, subject: object, scope: Scope, settings: Settings) -> Identity:
    """The caller by what a plain `user` says of `subject`. Raises `ConfigurationError` for one that has to be awaited."""
    found = None if user is None else user(subject)
    if isawaitable(found):
        if iscoroutine(found):
            found.close()
        raise ConfigurationError(f"user={user!r} has to be awaited, and this endpoint is not async: make either one so")
    return _identity(found, scope, settings)


async def aidentify(user: User | None, subject: object, scope: Scope, settings: Settings) -> Identity:
    """`identify` for an event loop, where `user` may be a coroutine function."""
    found = None if user is None else user(subject)
    return _identity(await found if isawaitable(found) else found, scope, settings)


def checked_user(user: User | None) -> User | None:
    """`user`. Raises `ConfigurationError` if it is not a function."""
    if user is None or callable(user):
        return user
    raise ConfigurationError(f"user={user!r} is not a function that tells who is calling")


def _identity(found: object, scope: Scope, settings: Settings) -> Identity:
    return found if isinstance(found, Identity) else scope_identity(scope, settings, found)
