"""The ASGI types, and what may be read from a scope before its body is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})


def may_hold_a_call(scope: Scope, *, any_content_type: bool = False) -> bool:
    """Whether the request's body could be JSON that an MCP application runs.

    A missing Content-Type counts as JSON, and so does one JSON line among several: which of them the
    application heeds is not known here. With `any_content_type` every body counts, whatever it says it is.
    """
    if scope.get("method", "").upper() in _BODILESS:
        return False
    declared = header_lines(scope, b"content-type")
    return any_content_type or not declared or any(b"json" in value.lower() for value in declared)


def is_encoded(scope: Scope) -> bool:
    """Whether the body is compressed, or otherwise not the bytes the application will parse."""
    return any(value.strip().lower() not in (b"", b"identity") for value in header_lines(scope, b"content-encoding"))


def declared_length(scope: Scope) -> int:
    """The largest Content-Length the request gives, 0 if it gives none that is a number."""
    # More digits than any body has would be more than int() reads; the first ones tell enough.
    return max((int(value[:18]) for value in header_lines(scope, b"content-length") if value.isdigit()), default=0)


def header_lines(scope: Scope, name: bytes) -> list[bytes]:
    """The value of every header line called `name` (in lower case)."""
    length = len(name)
    return [value for line, value in scope.get("headers") or () if len(line) == length and line.lower() == name]
