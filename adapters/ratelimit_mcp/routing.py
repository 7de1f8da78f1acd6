"""The call that a request's headers tell: `Mcp-Method` and `Mcp-Name`, which MCP has since its version of 2026-07-28.

Rules:
- Only for an application that refuses a request whose headers and body differ, in a version that has them do so.
- A header that is missing, there twice, or not spelled as the protocol spells it tells nothing: the body is read.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from ratelimit.asgi import Scope, header_lines
from ratelimit_mcp.calls import NAMED, RpcCall

CHECKED_VERSIONS: Final = frozenset({b"2026-07-28"})
"""Protocol versions in which a server must refuse headers that differ from the body."""

_METHOD: Final = re.compile(rb"[A-Za-z0-9_$./-]{1,128}")
_NAME: Final = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_ENCODED: Final = re.compile(rb"=\?base64\?(.*)\?=")
_WITHOUT_NAME: Final = frozenset({"resources/subscribe"})
"""Methods that ask for something by name, which `Mcp-Name` does not tell."""


def routed_call(scope: Scope) -> RpcCall | None:
    """The call as its headers tell it (without id and arguments), None if they do not tell all that limits ask for."""
    if _only(scope, b"mcp-protocol-version") not in CHECKED_VERSIONS:
        return None
    method = _only(scope, b"mcp-method")
    if method is None or not _METHOD.fullmatch(method):
        return None
    named = method.decode("ascii")
    if named in _WITHOUT_NAME:
        return None
    if named not in NAMED:
        return RpcCall(named, None, True)
    name = _decoded(_only(scope, b"mcp-name"))
    return None if name is None else RpcCall(named, None, True, name)


def _only(scope: Scope, name: bytes) -> bytes | None:
    """The value of a header that is there once, spelled as servers look for it."""
    lines = header_lines(scope, name)
    exact = [value for line, value in scope["headers"] if line == name]
    return exact[0] if len(lines) == len(exact) == 1 else None


def _decoded(value: bytes | None) -> str | None:
    """A name as it is meant, None for one that is not spelled in the only way there is."""
    if value is None or not _NAME.fullmatch(value):
        return None
    encoded = _ENCODED.fullmatch(value)
    if encoded is None:
        return value.decode("ascii")
    try:
        name = base64.b64decode(encoded[1], validate=True)
        return name.decode("utf-8") if base64.b64encode(name) == encoded[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None
