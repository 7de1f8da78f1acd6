"""A path's segments, however it is spelled: what routers take for the same path is the same here.

Rules:
- Slashes too many, one at the end and a line end make no difference: `//api/` and `/api\\n` are `/api`.
- Case makes none where it is folded, by the same reckoning as in Python's regular expressions: `ſ` is an `s`.
- Nothing is decoded: a router is given decoded paths. `.` and `..` are names like any other for a router, and are resolved by
  what serves files.
"""

from __future__ import annotations

import re
from typing import Final

from ratelimit.errors import ConfigurationError

Segments = tuple[str, ...]

_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_FORMAT: Final = re.compile(r"\.[A-Za-z0-9]+\Z")
_PATTERNS: Final = frozenset("?#*{}<>")


def spelled(path: str) -> tuple[Segments, bool]:
    """The segments of a path, and whether this is its plain spelling."""
    # A pattern that ends in "$" takes a line end as well, as many routers' do.
    bare = path.rstrip("\r\n")
    parts = bare.split("/")
    segments = tuple([part for part in parts if part])
    # Plain is what begins with a slash and has at most one at the end.
    empty = 1 + (len(parts) > 1 and not parts[-1])
    return segments, len(parts) - len(segments) <= empty and len(bare) == len(path)


def folded(segments: Segments) -> Segments:
    """Segments for a router that ignores case."""
    # Without a dotless i and the dot over one: both match "i" where case is ignored.
    return tuple([part.casefold().replace("\u0131", "i").replace("i\u0307", "i") for part in segments])


def without_format(segments: Segments) -> Segments:
    """Segments without the format that the last one may end in: `login` for `login.json`."""
    return (*segments[:-1], _FORMAT.sub("", segments[-1]))


def has_dots(segments: Segments) -> bool:
    """Whether what serves files would take the path for another one."""
    return "." in segments or ".." in segments


def without_dots(segments: Segments) -> Segments:
    """Segments with `.` and `..` resolved, as far as there is something above."""
    found: list[str] = []
    for part in segments:
        if part == "..":
            del found[-1:]
        elif part != ".":
            found.append(part)
    return tuple(found)


def plain_prefix(prefix: object) -> Segments:
    """The segments of a rule's prefix. Raises `ConfigurationError` for one that no path can begin with."""
    if not isinstance(prefix, str) or not prefix.startswith("/"):
        raise ConfigurationError(f"path {prefix!r}: write it from the root of the application, as in '/api/login'")
    segments, plain = spelled(prefix)
    if not plain or _PATTERNS & set(prefix):
        raise ConfigurationError(f"path {prefix!r}: a prefix is plain segments, without patterns and doubled slashes")
    if _ESCAPE.search(prefix):
        raise ConfigurationError(f"path {prefix!r}: write it decoded, as routers see it: '/café', not '/caf%C3%A9'")
    if not prefix.isprintable() or prefix != prefix.strip() or {".", ".."} & set(segments):
        raise ConfigurationError(f"path {prefix!r}: no blanks at its ends, no control characters, no '.' and '..'")
    return segments
