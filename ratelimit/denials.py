"""Denials that are known already: a caller that has to wait is told so without another trip to the store.

Rules:
- A denial is known until its wait is over, but no longer than the setting `denial_cache_ms` says: what else may happen
  meanwhile (a `clear` by another process, units given back there) is seen after that at the latest.
- It answers the cost that was denied, and higher ones.
- Refused calls change nothing in the store, so nothing is missed there.
- It is forgotten by `clear`, by what is settled, and when a limit changes; and when the clock steps back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ratelimit.outcome import NEVER
from ratelimit.stores.base import Callers, Taken

LONGEST: Final = 256
"""Characters of a caller that is worth remembering, of several together: strangers may choose long texts."""
MOST: Final = 1_000
"""Callers of one rule and tier whose denials are known; the one that came first makes room."""


class Denial(NamedTuple):
    """What the store answered at `since_us`; it holds until `until_us` for `cost` units and more."""

    since_us: int
    until_us: int
    cost: int
    found: Taken


class Denials:
    """The denials of one rate of one group, or of several that are asked together, by caller or callers.

    Every step is atomic: no lock. Times in microseconds.
    """

    __slots__ = ("_by_caller", "_longest_us")

    def __init__(self, longest_us: int) -> None:
        self._longest_us = longest_us
        self._by_caller: dict[Callers, Denial] = {}

    def get(self, caller: Callers, cost: int, now_us: int) -> Taken | None:
        """What the store would answer, as far as is known."""
        denial = self._by_caller.get(caller)
        if denial is None:
            return None
        since_us, until_us, denied, (passes, state, at_us) = denial
        if since_us <= now_us < until_us:
            return (passes, state, at_us + now_us - since_us) if cost >= denied else None
        self._by_caller.pop(caller, None)
        return None

    def put(self, caller: Callers, cost: int, now_us: int, found: Taken, wait_us: int) -> None:
        """Remembers that `cost` units were denied, for `wait_us`."""
        longest_us = self._longest_us
        until_us = now_us + (longest_us if wait_us == NEVER else min(wait_us, longest_us))
        known = self._by_caller.get(caller)
        if (
            until_us <= now_us
            or (len(caller) if isinstance(caller, str) else sum(map(len, caller))) > LONGEST
            or (known is not None and known.cost <= cost and now_us < known.until_us)
        ):
            return
        if len(self._by_caller) >= MOST:
            for first in list(self._by_caller)[: 1 + len(self._by_caller) - MOST]:
                self._by_caller.pop(first, None)
        self._by_caller[caller] = Denial(now_us, until_us, cost, found)

    def drop(self, caller: str) -> None:
        """Forgets what is known of `caller`, alone and among several."""
        for known in list(self._by_caller):
            if known == caller or (not isinstance(known, str) and caller in known):
                self._by_caller.pop(known, None)


class NamedDenials(Denials):
    """Denials of a text that names a caller, as of the callers that `named` gives for it."""

    __slots__ = ("_named",)

    def __init__(self, longest_us: int, named: Callable[[str], Callers]) -> None:
        super().__init__(longest_us)
        self._named = named

    def get(self, caller: Callers, cost: int, now_us: int) -> Taken | None:
        """See `Denials.get`."""
        return super().get(self._named(caller) if isinstance(caller, str) else caller, cost, now_us)

    def put(self, caller: Callers, cost: int, now_us: int, found: Taken, wait_us: int) -> None:
        """See `Denials.put`."""
        super().put(self._named(caller) if isinstance(caller, str) else caller, cost, now_us, found, wait_us)
