"""The tables of a memory store, and the bound on all of them together.

Rules:
- What is over is let go a few keys at a time by later calls, so that no call pays for a million of them.
- At `max_keys`, room is made by what is over; then by a caller with units left: of the eight that came longest ago, the one
  that has used the least, and the others get another round; then by one without units left, in the table whose span of time
  ends first; and by a ban only when there is nothing else.
- A table without callers is let go too.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

from ratelimit.keys import MAX_PART
from ratelimit.stores.shards import Key
from ratelimit.stores.tables import Generation, Table, used

Name = tuple[str, str, int]
"""The head of its keys, a letter for the algorithm, and the window in seconds."""

BANS: Final = "ban"
DRAINED_PER_CALL: Final = 8
_DRAINED_FOR_ROOM: Final = 32
_COMPARED: Final = 8
_LOOKED_AT: Final = 64
_LARGE: Final = 64


def shortened(caller: str) -> Key:
    """`caller` as it is kept: strangers may choose long texts. Bytes are never equal to a text."""
    return caller if len(caller) <= MAX_PART else blake2b(caller.encode("utf-8", "surrogatepass")).digest()


class Keeper:
    """All that one store holds. Whoever calls a method holds `lock`; times in microseconds."""

    def __init__(self, max_keys: int) -> None:
        self.lock = threading.Lock()
        self.held = 0
        self._max_keys = max_keys
        self._tables: dict[Name, Table] = {}
        self._ring: deque[Name] = deque()  # of all tables, to look at one after the other
        self._over: list[dict[Key, Any]] = []
        self._largest: Table | None = None
        self._busy: Table | None = None

    def table(self, name: Name, span_us: int, aligned: bool, now_us: int) -> Table:
        """The table called `name`, at `now_us`."""
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = Table(span_us, aligned)
            self._ring.append(name)
        table.widen(span_us)
        self._turn(table, now_us)
        return table

    def known(self, name: Name, now_us: int) -> Table | None:
        """The table called `name`, if there is one."""
        table = self._tables.get(name)
        if table is not None:
            self._turn(table, now_us)
        return table

    def keep(self, table: Table, key: Key, value: Any, spent: bool, at_us: int, now_us: int) -> None:
        """Keeps `value` in the window that holds `at_us`, else in the newest generation."""
        _, known = table.get(key, at_us)
        generation = table.at(at_us)
        shards = generation.spent if spent else generation.open
        if known is None:
            self._busy = table  # not to be let go, however empty it is
            self._make_room(now_us)
            self._busy = None
            self.held += 1
        elif known is not shards:
            known.pop(key)
        shards.put(key, value)
        if known is not shards:
            self.tidy(now_us)
            if self._largest is None or generation.open.size > self._largest.newest.open.size:
                self._largest = table

    def drop(self, table: Table, key: Key, at_us: int) -> None:
        """Forgets `key` in the window that holds `at_us`, else in any generation."""
        _, known = table.get(key, at_us)
        if known is not None:
            known.pop(key)
            self.held -= 1

    def drop_everywhere(self, beginning: str, key: Key) -> None:
        """Forgets `key` in every table whose head begins so."""
        for (head, _, _), table in self._tables.items():
            if head.startswith(beginning):
                for generation in table.generations:
                    self.held -= generation.open.pop(key) is not None
                    self.held -= generation.spent.pop(key) is not None

    def tidy(self, now_us: int) -> None:
        """Looks at one table whether something in it is over, and lets go of a few keys of what is."""
        self._look(now_us)
        self._drain(DRAINED_PER_CALL)

    def _turn(self, table: Table, now_us: int) -> None:
        if not table.since_us <= now_us < table.until_us:
            for generation in table.turn(now_us):
                self._over += generation.open.parts() + generation.spent.parts()

    def _look(self, now_us: int) -> Table | None:
        if not self._ring:
            return None
        name = self._ring.popleft()
        table = self._tables[name]
        self._turn(table, now_us)
        if table.size or table is self._busy:
            self._ring.append(name)
            return table
        del self._tables[name]
        table.since_us = table.until_us = 0  # whoever still has it must ask for it again
        self._largest = None if self._largest is table else self._largest
        return None

    def _drain(self, keys: int) -> None:
        while keys and self._over:
            part = self._over[-1]
            for _ in range(min(keys, len(part))):
                part.popitem()
                keys -= 1
                self.held -= 1
            if not part:
                self._over.pop()

    def _make_room(self, now_us: int) -> None:
        if self.held < self._max_keys:
            return
        for _ in range(_COMPARED):
            self._drain(_DRAINED_FOR_ROOM)
            if self.held < self._max_keys:
                return
            self._look(now_us)
        if not self._evict_open(now_us) and not self._evict_spent(now_us, bans=False):
            self._evict_spent(now_us, bans=True)

    def _evict_open(self, now_us: int) -> bool:
        largest = self._largest
        if largest is not None and largest.newest.open.size >= _LARGE:
            tables: Iterator[Table | None] = iter([largest])
        else:
            tables = (self._look(now_us) for _ in range(min(len(self._ring), _LOOKED_AT)))
        for table in tables:
            for generation in reversed(table.generations if table else []):
                if generation.open.size:
                    self._evict_least_used(generation)
                    return True
        return False

    def _evict_least_used(self, generation: Generation) -> None:
        part, entries = generation.open.oldest(_COMPARED)
        least = min(entries, key=lambda entry: used(entry[1]))
        for key, value in entries:
            del part[key]
            if key != least[0]:
                part[key] = value
        generation.open.size -= 1
        self.held -= 1

    def _evict_spent(self, now_us: int, bans: bool) -> bool:
        looked_at = [self._ring[place] for place in range(min(len(self._ring), _LOOKED_AT))]
        found = [
            generation
            for name in looked_at
            if (name[1] == BANS) == bans
            for generation in self._tables[name].generations
            if generation.spent.size
        ]
        if not found:
            return False
        first = min(found, key=lambda generation: generation.ends_us)
        _, entries = first.spent.oldest(1)
        first.spent.pop(entries[0][0])
        self.held -= 1
        return True
