"""Counts in this process's memory: exact under threads, bounded, without a background thread.

Rules:
- One lock, held for arithmetic and dictionary work only.
- What has expired is let go a few keys at a time by later calls. At `max_keys` something makes room; see `keeper.py`.
- A rate that is asked for often has a counter (`memory_counters.py`), which does the same as `apply`, for one charge.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Final

from ratelimit.algorithms.base import BY_NAME, State, algorithm_of, can_pass, units_of
from ratelimit.errors import ConfigurationError
from ratelimit.outcome import LOOK, TAKE, Charge, Outcome
from ratelimit.rates import Rate
from ratelimit.stores.base import LocalCounter, LocalJointCounter, Share
from ratelimit.stores.keeper import BANS, Keeper, Name, shortened
from ratelimit.stores.memory_counters import counter_of
from ratelimit.stores.memory_joint import MemoryJoint
from ratelimit.stores.tables import kept, state_of
from ratelimit.transaction import NO_BAN, Ban, Verdict, held_back, judge, next_ban, outcomes, remembered

DEFAULT_MAX_KEYS: Final = 100_000


class MemoryStore:
    """A store for one process. `max_keys` bounds the keys it holds, 100 to 150 bytes each in groups of many callers.

    Several processes do not share it: the real limit is then the limit times the processes.
    """

    holds = frozenset({*BY_NAME, "ban", "distinct"})

    def __init__(self, max_keys: int = DEFAULT_MAX_KEYS) -> None:
        if type(max_keys) is not int or max_keys < 1:
            raise ConfigurationError(f"max_keys {max_keys!r} is not a whole number of at least 1")
        self.max_keys = max_keys
        self._keeper = Keeper(max_keys)
        _STORES.add(self)

    def __len__(self) -> int:
        """Keys held now, expired ones that were not let go yet included."""
        with self._keeper.lock:
            return self._keeper.held

    def __bool__(self) -> bool:
        return True  # also while it is empty

    def counter(self, head: str, rate: Rate) -> LocalCounter | None:
        """See `Store.counter`. A subclass that changes `apply` has none, so that it is asked."""
        if type(self).apply is not MemoryStore.apply:
            return None
        return counter_of(self._keeper, head, rate)

    def joint(self, shares: Sequence[Share], one_caller: bool) -> LocalJointCounter | None:
        """See `Store.joint`. A subclass that changes `apply` or `counter` has none, so that it is asked."""
        if type(self).apply is not MemoryStore.apply or type(self).counter is not MemoryStore.counter:
            return None
        return MemoryJoint(self._keeper, shares)

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        """See `Store.apply`; no round trip."""
        with self._keeper.lock:
            verdicts, every = judge(
                charges, now_us, lambda charge: self._state(charge, now_us), lambda charge: self._ban(charge, now_us)
            )
            if mode != LOOK:
                silent = held_back(charges, [verdict.passes for verdict in verdicts]) if len(charges) > 1 else ()
                for index, (charge, verdict) in enumerate(zip(charges, verdicts, strict=True)):
                    if verdict.passes:
                        if every and (charge.enforce or charge.rule not in silent):
                            self._take(charge, verdict.before, now_us)
                    elif charge.bans_us and can_pass(charge) and not verdict.banned_until_us:
                        verdicts[index] = self._write_ban(charges, charge, verdict, now_us)
            self._keeper.tidy(now_us)
        return outcomes(charges, verdicts, every, mode != LOOK, now_us, now_us)

    async def aapply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        """The same: nothing here waits."""
        return self.apply(charges, now_us, mode)

    def settle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
        """See `Store.settle`."""
        with self._keeper.lock:
            for charge in charges:
                algorithm = algorithm_of(charge)
                found = self._found(charge, taken_us, now_us)
                if found is not None or charge.cost > 0:
                    state = None if found is None else state_of(charge.rate, found)
                    before = algorithm.current(state, charge.rate, now_us)
                    after = algorithm.settle(before, charge.rate, charge.cost, taken_us)
                    if after != before:
                        self._keep(charge, after, kept(charge.rate, after), taken_us, now_us)

    async def asettle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
        """The same."""
        self.settle(charges, now_us, taken_us)

    def clear(self, charges: Sequence[Charge], now_us: int) -> None:
        """See `Store.clear`."""
        with self._keeper.lock:
            for charge in charges:
                self._drop(_name(charge), charge, now_us)
                self._drop((charge.ban_head, BANS, 0), charge, now_us)

    async def aclear(self, charges: Sequence[Charge], now_us: int) -> None:
        """The same."""
        self.clear(charges, now_us)

    def clear_caller(self, prefix: str, caller: str) -> None:
        """See `Store.clear_caller`; looks into every group."""
        with self._keeper.lock:
            self._keeper.drop_everywhere(f"{prefix}:", shortened(caller))

    async def aclear_caller(self, prefix: str, caller: str) -> None:
        """The same."""
        self.clear_caller(prefix, caller)

    def close(self) -> None:
        """Nothing to let go of: the counts stay."""

    async def aclose(self) -> None:
        """The same."""

    def _found(self, charge: Charge, at_us: int, now_us: int) -> Any:
        table = self._keeper.known(_name(charge), now_us)
        return table.get(shortened(charge.caller), at_us)[0] if table is not None else None

    def _state(self, charge: Charge, now_us: int) -> State | None:
        found = self._found(charge, now_us, now_us)
        if found is None:
            return None
        return state_of(charge.rate, found) if charge.member is None else (len(found), int(charge.member in found))

    def _ban(self, charge: Charge, now_us: int) -> Ban:
        table = self._keeper.known((charge.ban_head, BANS, 0), now_us)
        return remembered(table.get(shortened(charge.caller), now_us)[0], now_us) if table is not None else NO_BAN

    def _take(self, charge: Charge, before: State, now_us: int) -> None:
        after = algorithm_of(charge).take(before, units_of(charge))
        if after == before:
            return
        if charge.member is None:
            self._keep(charge, after, kept(charge.rate, after), now_us, now_us)
            return
        values = self._found(charge, now_us, now_us) or set()
        values.add(charge.member)
        self._keep(charge, (len(values), 0), values, now_us, now_us)

    def _keep(self, charge: Charge, state: State, value: Any, at_us: int, now_us: int) -> None:
        """Keeps what is so since `at_us`; for the windows that are numbered, a moment in the right one."""
        algorithm, rate = algorithm_of(charge), charge.rate
        spent = not algorithm.passes(state, rate, 1, now_us)
        aligned = rate.algorithm == "fixed"
        span_us = rate.window_us if aligned else algorithm.lifetime_us(state, rate, now_us)
        table = self._keeper.table(_name(charge), span_us, aligned, now_us)
        self._keeper.keep(table, shortened(charge.caller), value, spent, at_us, now_us)

    def _drop(self, name: Name, charge: Charge, now_us: int) -> None:
        table = self._keeper.known(name, now_us)
        if table is not None:
            self._keeper.drop(table, shortened(charge.caller), now_us)

    def _write_ban(self, charges: Sequence[Charge], charge: Charge, verdict: Verdict, now_us: int) -> Verdict:
        ban = self._ban(charge, now_us)
        if ban.until_us <= now_us:
            ban = next_ban(ban, charge.bans_us, now_us)
            table = self._keeper.table((charge.ban_head, BANS, 0), ban.forgotten_us - now_us, False, now_us)
            self._keeper.keep(table, shortened(charge.caller), ban, True, now_us, now_us)
        for other in charges:
            if (other.ban_head, other.caller) == (charge.ban_head, charge.caller):
                self._drop(_name(other), other, now_us)
        return verdict._replace(banned_until_us=ban.until_us)


def _name(charge: Charge) -> Name:
    return charge.head, charge.rate.algorithm if charge.member is None else "distinct", charge.rate.window


_STORES: weakref.WeakSet[MemoryStore] = weakref.WeakSet()


def _renew_locks() -> None:
    """In a forked child: a lock that another thread of the parent held would never be released."""
    for store in list(_STORES):
        store._keeper.lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # pragma: no branch (a system without fork)
    os.register_at_fork(after_in_child=_renew_locks)


def open_memory(url: str) -> MemoryStore:
    """The store of `memory://` (or `memory://?max_keys=N`)."""
    found = re.fullmatch(r"memory://(?:\?max_keys=([0-9]{1,12}))?", url)
    if found is None:
        raise ConfigurationError(f"store {url!r}: expected 'memory://' or 'memory://?max_keys=100000'")
    return MemoryStore(int(found[1])) if found[1] else MemoryStore()
