"""A dictionary that never makes a call wait: neither its growth nor its end takes long, however much it holds.

Rules:
- The first `FIRST` keys lie in one dictionary, `first`; further ones are spread over many. A Python dictionary that grows
  is copied at once, which at a million keys takes some hundredths of a second; one of a thousand, a tenth of a millisecond
  or two. Twice as many would weigh too much where there are a few thousand keys.
- Values are whole numbers where that can be: the garbage collector passes over a dictionary of texts and numbers, however
  large it is.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

FIRST: Final = 2_048
SPREAD: Final = 512

Key = str | bytes


class Shards:
    """Values by key. `first` may be read, and a value that is in it replaced, without a method call."""

    __slots__ = ("_more", "_turn", "first", "size")

    def __init__(self) -> None:
        self.first: dict[Key, Any] = {}
        self.size = 0
        self._more: list[dict[Key, Any]] = []
        self._turn = 0

    def get(self, key: Key) -> Any:
        """The value of `key`, None if it has none."""
        found = self.first.get(key)
        return self._more[hash(key) % SPREAD].get(key) if found is None and self._more else found

    def part(self, key: Key) -> dict[Key, Any]:
        """Where `key` is, if it is here."""
        return self._more[hash(key) % SPREAD] if self._more and key not in self.first else self.first

    def put(self, key: Key, value: Any) -> None:
        """Keeps `value`."""
        place = self._place(key)
        self.size += key not in place
        place[key] = value

    def pop(self, key: Key) -> Any:
        """Forgets `key`, and gives the value it had, None if none."""
        found = self.first.pop(key, None)
        if found is None and self._more:
            found = self._more[hash(key) % SPREAD].pop(key, None)
        self.size -= found is not None
        return found

    def parts(self) -> list[dict[Key, Any]]:
        """The dictionaries it consists of, to be emptied little by little."""
        return [part for part in (self.first, *self._more) if part]

    def oldest(self, many: int) -> tuple[dict[Key, Any], list[tuple[Key, Any]]]:
        """Up to so many entries that came before others, and the dictionary they are in: each time of another one.

        There must be any.
        """
        while True:
            self._turn = (self._turn + 1) % (len(self._more) + 1)
            part = self._more[self._turn - 1] if self._turn else self.first
            if part:
                return part, list(islice(part.items(), many))

    def _place(self, key: Key) -> dict[Key, Any]:
        first = self.first
        if key in first:
            return first
        if self._more:
            place = self._more[hash(key) % SPREAD]
            return first if key not in place and len(first) < FIRST else place
        if len(first) < FIRST:
            return first
        self._more = [{} for _ in range(SPREAD)]
        return self._more[hash(key) % SPREAD]
