"""Names in a map, exact ones and patterns, and names as rules may count by them.

Rules:
- An exact name comes before a pattern, of two patterns the one with more letters of its own, then the first in the map.
- `*` stands for any text. In a resource's URI `{name}` does so within one segment, as in the template it is read by.
- A URI is compared as it came and percent-decoded, with and without query and fragment, as servers match templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar
from urllib.parse import unquote

Value = TypeVar("Value")

MAX_NAMES: Final = 1000
"""Different names of one kind that are told apart where rules count by them, besides those in a map."""

_SPECIAL: Final = re.compile(r"(\*|\{[^{}]*\})")
_QUERY: Final = re.compile(r"\{[?&][^{}]*\}")


class NameMap(Generic[Value]):
    """What holds for a name, found by the name itself or by a pattern."""

    def __init__(self, values: Mapping[str, Value], *, uris: bool = False) -> None:
        self.keys = tuple(values)
        self._uris = uris
        self._exact = dict(values)
        patterns = [(name, pattern_of(name, uris=uris)) for name in values if uris or "*" in name]
        patterns.sort(key=lambda one: -len(_SPECIAL.sub("", one[0])))
        self._patterns = [(pattern, values[name]) for name, pattern in patterns]

    def __bool__(self) -> bool:
        return bool(self.keys)

    def find(self, name: str) -> Value | None:
        """What holds for `name`, None if nothing does."""
        if name in self._exact:
            return self._exact[name]
        spellings = (name, unquote(name)) if self._uris and "%" in name else (name,)
        for pattern, value in self._patterns:
            if any(pattern.fullmatch(spelling) for spelling in spellings):
                return value
        return None

    def without(self, names: Iterable[str]) -> list[str]:
        """The keys that mean none of `names`, which may be templates of URIs."""
        known = list(names)
        return [key for key in self.keys if not any(self._meet(key, name) for name in known)]

    def _meet(self, key: str, name: str) -> bool:
        if pattern_of(key, uris=self._uris).fullmatch(name):
            return True
        return self._uris and pattern_of(name, uris=True).fullmatch(key) is not None


class OtherName(str):
    """A name that rules match as it is, and count as one with all others of its kind."""

    __slots__ = ()

    def __str__(self) -> str:
        return "*"

    def __format__(self, spec: str) -> str:
        return "*"


class Known:
    """The names of one kind that are told apart: those of a map, and the first `MAX_NAMES` others that are seen.

    Clients may call tools that do not exist. None of them gets ever new budgets by that.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = set(names)
        self._most = len(self._names) + MAX_NAMES

    def shown(self, name: str) -> str:
        """`name` as rules see it."""
        if name not in self._names:
            if len(self._names) >= self._most:
                return OtherName(name)
            self._names.add(name)
        return name


def pattern_of(name: str, *, uris: bool = False) -> re.Pattern[str]:
    """What a key means, as an expression for a whole name."""
    parts = _SPECIAL.split(_QUERY.sub("", name) if uris else name)
    text = "".join(_part(part, uris) if n % 2 else re.escape(part) for n, part in enumerate(parts))
    # A query or a fragment makes no other resource, and a "$" in a server's own pattern lets a line end through.
    return re.compile(text + (r"(?:[?#].*)?\n?" if uris else ""), re.DOTALL)


def _part(special: str, uris: bool) -> str:
    if special == "*":
        return ".*"
    if not uris:
        return re.escape(special)
    return "[^/]*" if special[1:2].isalnum() and not special.endswith("*}") else ".*"
