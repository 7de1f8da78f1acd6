"""Who is calling, decided once for every protocol: a signed token in the `Authorization` header.

The server makes a token for whoever knows the password, and believes only what it has signed. Without a token, or with
a token that is not the server's, a caller is a stranger, counted by the address of its connection.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from asgiref.sync import markcoroutinefunction
from django.conf import settings
from django.core import signing

SALT = "unified.login"
HOUR = 3600


@dataclass(frozen=True)
class User:
    """What the limiter reads of a user: these names are those of Django's users too."""

    pk: str
    is_superuser: bool = False
    is_authenticated: ClassVar[bool] = True


def make_token(name: str, password: str) -> str | None:
    """A token for an hour; None if the password is not that of `name`."""
    expected = settings.DEMO_PASSWORDS.get(name, "")
    known = secrets.compare_digest(password.encode(), expected.encode()) and expected
    return signing.dumps(name, salt=SALT) if known else None


def user_of(headers: Iterable[tuple[bytes, bytes]]) -> User | None:
    """The user whose token the headers bring."""
    for header, value in headers:
        if header.lower() == b"authorization" and value.lower().startswith(b"bearer "):
            try:
                name = signing.loads(value[7:].decode("latin-1").strip(), salt=SALT, max_age=HOUR)
            except signing.BadSignature:
                return None
            return User(name, is_superuser=name in settings.DEMO_SUPERUSERS)
    return None


class Login:
    """ASGI middleware around the whole application: puts the user, or None, into `scope["user"]`."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] in ("http", "websocket"):
            scope = {**scope, "user": user_of(scope["headers"])}
        await self.app(scope, receive, send)


class RequestUser:
    """Django middleware: the same user as `request.user`."""

    sync_capable = False
    async_capable = True

    def __init__(self, get_response: Callable[..., Any]) -> None:
        self.get_response = get_response
        markcoroutinefunction(self)

    async def __call__(self, request: Any) -> Any:
        request.user = request.scope["user"]
        return await self.get_response(request)
