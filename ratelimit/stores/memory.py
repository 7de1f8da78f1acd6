"""Counts in this process's memory: exact under threads, bounded, without a background thread.

Rules:
- One lock, held for arithmetic and dictionary work only.
- A cell is a state and when it expires. Expired cells are let go a few at a time by later calls, so that no call pays
  for a million of them.
- At `max_keys` the cell that was used least recently makes room; one that is used up, or a ban, only when there is no other.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from ratelimit.algorithms.base import BY_NAME, State, algorithm_of, can_pass, units_of
from ratelimit.errors import ConfigurationError
from ratelimit.keys import stored_key
from ratelimit.outcome import LOOK, TAKE, Charge, Outcome
from ratelimit.stores.cells import Cells
from ratelimit.transaction import Ban, Verdict, held_back, judge, next_ban, outcomes, remembered

DEFAULT_MAX_KEYS: Final = 100_000


class MemoryStore:
    """A store for one process. `max_keys` bounds the keys it holds, about 300 bytes each.

    Several processes do not share it: the real limit is then the limit times the processes.
    """

    holds = frozenset({*BY_NAME, "ban", "distinct"})

    def __init__(self, max_keys: int = DEFAULT_MAX_KEYS) -> None:
        if type(max_keys) is not int or max_keys < 1:
            raise ConfigurationError(f"max_keys {max_keys!r} is not a whole number of at least 1")
        self.max_keys = max_keys
        self._lock = threading.Lock()
        self._cells = Cells(max_keys)
        _STORES.add(self)

    def __len__(self) -> int:
        """Keys held now, expired ones that were not let go yet included."""
        with self._lock:
            return len(self._cells)

    def __bool__(self) -> bool:
        return True  # also while it is empty

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        """See `Store.apply`; no round trip."""
        with self._lock:
            verdicts, every = judge(charges, now_us, self._state_at(now_us), self._ban_at(now_us))
            if mode != LOOK:
                silent = held_back(charges, [verdict.passes for verdict in verdicts]) if len(charges) > 1 else ()
                for index, (charge, verdict) in enumerate(zip(charges, verdicts, strict=True)):
                    if verdict.passes:
                        if every and (charge.enforce or charge.rule not in silent):
                            self._take(charge, verdict.before, now_us)
                    elif charge.bans_us and can_pass(charge) and not verdict.banned_until_us:
                        verdicts[index] = self._write_ban(charges, charge, verdict, now_us)
            self._cells.expire(now_us)
        return outcomes(charges, verdicts, every, mode != LOOK, now_us, now_us)

    async def aapply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        """The same: nothing here waits."""
        return self.apply(charges, now_us, mode)

    def settle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
        """See `Store.settle`."""
        with self._lock:
            for charge in charges:
                key = stored_key(charge, taken_us)
                algorithm = algorithm_of(charge)
                found = self._cells.get(key, now_us)
                if found is not None or charge.cost > 0:
                    before = algorithm.current(found, charge.rate, now_us)
                    after = algorithm.settle(before, charge.rate, charge.cost, taken_us)
                    if after != before:
                        at_us = taken_us if charge.rate.algorithm == "fixed" else now_us
                        self._keep(charge, key, after, after, at_us, now_us)

    async def asettle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
        """The same."""
        self.settle(charges, now_us, taken_us)

    def clear(self, charges: Sequence[Charge], now_us: int) -> None:
        """See `Store.clear`."""
        with self._lock:
            for charge in charges:
                self._cells.drop(stored_key(charge, now_us))
                self._cells.drop(charge.ban_key)

    async def aclear(self, charges: Sequence[Charge], now_us: int) -> None:
        """The same."""
        self.clear(charges, now_us)

    def clear_caller(self, prefix: str, caller_tag: str) -> None:
        """See `Store.clear_caller`; looks at every key."""
        start, part = f"{prefix}:", f":{caller_tag}:"
        with self._lock:
            for key in [key for key in self._cells if key.startswith(start) and part in key]:
                self._cells.drop(key)

    async def aclear_caller(self, prefix: str, caller_tag: str) -> None:
        """The same."""
        self.clear_caller(prefix, caller_tag)

    def close(self) -> None:
        """Nothing to let go of: the counts stay."""

    async def aclose(self) -> None:
        """The same."""

    def _state_at(self, now_us: int) -> Callable[[Charge], tuple[str, State | None]]:
        def state_of(charge: Charge) -> tuple[str, State | None]:
            key = stored_key(charge, now_us)
            found = self._cells.get(key, now_us)
            if charge.member is None or found is None:
                return key, found
            return key, (len(found), int(charge.member in found))

        return state_of

    def _ban_at(self, now_us: int) -> Callable[[str], Ban]:
        def ban_of(ban_key: str) -> Ban:
            return remembered(self._cells.get(ban_key, now_us), now_us)

        return ban_of

    def _take(self, charge: Charge, before: State, now_us: int) -> None:
        algorithm = algorithm_of(charge)
        after = algorithm.take(before, units_of(charge))
        if after == before:
            return
        key = stored_key(charge, now_us)
        kept: Any = after
        if charge.member is not None:
            kept = self._cells.get(key, now_us) or set()
            kept.add(charge.member)
        self._keep(charge, key, after, kept, now_us, now_us)

    def _keep(self, charge: Charge, key: str, after: State, kept: Any, at_us: int, now_us: int) -> None:
        """Keeps what is so since `at_us`; for the windows that are numbered, a moment in the right one."""
        algorithm = algorithm_of(charge)
        spent = not algorithm.passes((after[0], 0) if charge.member is not None else after, charge.rate, 1, now_us)
        self._cells.put(key, kept, at_us + algorithm.lifetime_us(after, charge.rate, at_us), now_us, spent)

    def _write_ban(self, charges: Sequence[Charge], charge: Charge, verdict: Verdict, now_us: int) -> Verdict:
        ban = self._ban_at(now_us)(charge.ban_key)
        if ban.until_us <= now_us:
            ban = next_ban(ban, charge.bans_us, now_us)
            self._cells.put(charge.ban_key, ban, ban.forgotten_us, now_us, spent=True)
        for other in charges:
            if other.ban_key == charge.ban_key:
                self._cells.drop(stored_key(other, now_us))
        return verdict._replace(banned_until_us=ban.until_us)


_STORES: weakref.WeakSet[MemoryStore] = weakref.WeakSet()


def _renew_locks() -> None:
    """In a forked child: a lock that another thread of the parent held would never be released."""
    for store in list(_STORES):
        store._lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # pragma: no branch (a system without fork)
    os.register_at_fork(after_in_child=_renew_locks)


def open_memory(url: str) -> MemoryStore:
    """The store of `memory://` (or `memory://?max_keys=N`)."""
    found = re.fullmatch(r"memory://(?:\?max_keys=([0-9]{1,12}))?", url)
    if found is None:
        raise ConfigurationError(f"store {url!r}: expected 'memory://' or 'memory://?max_keys=100000'")
    return MemoryStore(int(found[1])) if found[1] else MemoryStore()
