"""Which HTTP methods a limit counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ratelimit import ConfigurationError

ALL: Final = "ALL"
"""Every method."""
UNSAFE: Final = ("DELETE", "PATCH", "POST", "PUT")
"""The methods that change something."""

# Another name is taken for a misspelling, which would otherwise leave a view without a limit.
_HTTP: Final = {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
_WEBDAV: Final = {"COPY", "LOCK", "MKCALENDAR", "MKCOL", "MOVE", "PROPFIND", "PROPPATCH", "REPORT", "SEARCH", "UNLOCK"}
_KNOWN: Final = frozenset(_HTTP | _WEBDAV)


def counted_methods(method: str | Iterable[str]) -> frozenset[str] | None:
    """The methods in `method` (one name, several, `ALL` or `UNSAFE`) in capitals; None for all of them. GET means HEAD too:
    views answer it by the same code.

    Raises `ConfigurationError` for an empty list and for a name that is no HTTP method.
    """
    if method == ALL:
        return None
    names = [method] if isinstance(method, str) else list(method)
    if not names:
        raise ConfigurationError("method is empty: the limit would count nothing; leave it out to count every method")
    for name in names:
        if not isinstance(name, str) or name.upper() not in _KNOWN:
            raise ConfigurationError(f"method {name!r} is not an HTTP method; use names like 'POST', ALL or UNSAFE")
    found = frozenset(name.upper() for name in names)
    return found | {"HEAD"} if "GET" in found else found
