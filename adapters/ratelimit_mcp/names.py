"""Names in a map, exact ones and patterns, and names as rules may count by them.

Rules:
- An exact name comes before a pattern, of two patterns the one with more letters of its own, then the first in the map.
- `*` stands for any text. In a resource's URI `{name}` does so within one segment, as in the template it is read by;
  behind a `*` it stands for any text, too.
- A URI is compared as it came and percent-decoded, with and without query and fragment, as servers match templates.
- However long a name is, and whatever is in it: finding its pattern takes time in proportion to its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar
from urllib.parse import unquote

Value = TypeVar("Value")

MAX_NAMES: Final = 1000
"""Different names of one kind that are told apart where rules count by them, besides those in a map."""
LONGEST_NAME: Final = 200
"""Characters of a name that is told apart; MCP has tools of 128."""
LONGEST_URI: Final = 2000

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

    Clients may call tools that do not exist. None of them gets ever new budgets by that. With None for `names` any that
    are not overlong are told apart.
    """

    def __init__(self, names: Iterable[str] | None) -> None:
        self._names = None if names is None else set(names)
        self._most = len(self._names or ()) + MAX_NAMES

    def shown(self, name: str) -> str:
        """`name` as rules see it."""
        if self._names is None:
            return OtherName(name) if len(name) > LONGEST_URI else name
        if name not in self._names:
            if len(self._names) >= self._most or len(name) > LONGEST_NAME:
                return OtherName(name)
            self._names.add(name)
        return name


def pattern_of(name: str, *, uris: bool = False) -> re.Pattern[str]:
    """What a key means, as an expression for a whole name."""
    first, *parts = _parts(_QUERY.sub("", name), uris) if uris else _parts(name, uris)
    text, wild = re.escape(first), ""
    for n in range(0, len(parts), 2):
        # Behind any text, a text within a segment could begin anywhere: to try all would take too long.
        wild = ".*" if wild == ".*" else parts[n]
        literal, last = re.escape(parts[n + 1]), n + 2 == len(parts)
        # Of several places where a literal could be, the first one will do: the next wildcard takes what is left.
        if last:
            text += wild + literal
        elif literal:
            text += f"(?>{wild}?{literal})"
    # A query or a fragment makes no other resource, and a "$" in a server's own pattern lets a line end through.
    return re.compile(text + (r"(?:[?#].*)?\n?" if uris else ""), re.DOTALL)


def _parts(name: str, uris: bool) -> list[str]:
    """A literal, then a wildcard and a literal, and so on."""
    found = [""]
    for n, part in enumerate(_SPECIAL.split(name)):
        wild = _wildcard(part, uris) if n % 2 else None
        if wild is None:
            found[-1] += part
        else:
            found += [wild, ""]
    return found


def _wildcard(special: str, uris: bool) -> str | None:
    """What `*` or an expression in braces stands for, None where it stands for itself."""
    if special == "*":
        return ".*"
    if not uris:
        return None
    return "[^/]*" if special[1:2].isalnum() and not special.endswith("*}") else ".*"
