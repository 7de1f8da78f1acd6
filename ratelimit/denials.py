"""Denials that are known already: a caller that has to wait is told so without another trip to the store.

Rules:
- A denial is known until its wait is over, but no longer than the setting `denial_cache_ms` says: what else may happen
  meanwhile (a `clear` by another process, units given back there) is seen after that at the latest.
- It answers the cost that was denied, and higher ones.
- Refused calls change nothing in the store, so nothing is missed there. One that passes, because it costs less, does: what was
  known is forgotten, for the wait is longer now and what remains is less.
- It is forgotten by `clear`, by what is settled, and when a limit changes; and when the clock steps back. A check that began
  before that is not remembered after it, for its answer may be older: so it is for the caller that was cleared last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ratelimit.outcome import MAX_SKEW_US, NEVER
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

    Every step is atomic: no lock. Times in microseconds. `known` holds them by caller.
    """

    __slots__ = ("_dropped", "_longest_us", "known")

    def __init__(self, longest_us: int) -> None:
        self._longest_us = longest_us
        self._dropped: tuple[str, int] = "", 0  # who was dropped last, and when
        self.known: dict[Callers, Denial] = {}

    def get(self, caller: Callers, cost: int, now_us: int) -> Taken | None:
        """What the store would answer, as far as is known."""
        denial = self.known.get(caller)
        if denial is None:
            return None
        since_us, until_us, denied, (passes, state, at_us) = denial
        if since_us <= now_us < until_us:
            return (passes, state, at_us + now_us - since_us) if cost >= denied else None
        self.known.pop(caller, None)
        return None

    def put(self, caller: Callers, cost: int, now_us: int, found: Taken, wait_us: int) -> None:
        """Remembers that `cost` units were denied, for `wait_us`."""
        longest_us = self._longest_us
        until_us = now_us + (longest_us if wait_us == NEVER else min(wait_us, longest_us))
        known = self.known.get(caller)
        if (
            until_us <= now_us
            or self._was_dropped(caller, now_us)
            or (len(caller) if isinstance(caller, str) else sum(map(len, caller))) > LONGEST
            or (known is not None and known.cost <= cost and now_us < known.until_us)
        ):
            return
        if len(self.known) >= MOST:
            for first in list(self.known)[: 1 + len(self.known) - MOST]:
                self.known.pop(first, None)
        self.known[caller] = Denial(now_us, until_us, cost, found)

    def passed(self, caller: Callers) -> None:
        """Forgets what was known of who has taken units since. To be asked only if anything is `known`."""
        self.known.pop(caller, None)

    def drop(self, caller: str, now_us: int) -> None:
        """Forgets what is known of `caller`, alone and among several, and what it asked for before `now_us`."""
        self._dropped = caller, now_us
        for known in list(self.known):
            if _is_among(caller, known):
                self.known.pop(known, None)

    def _was_dropped(self, caller: Callers, since_us: int) -> bool:
        """Whether it was since then. Far in the future is no time of a clock that has been put right."""
        who, at_us = self._dropped
        return since_us < at_us <= since_us + MAX_SKEW_US and _is_among(who, caller)


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

    def passed(self, caller: Callers) -> None:
        """See `Denials.passed`."""
        super().passed(self._named(caller) if isinstance(caller, str) else caller)


def _is_among(caller: str, callers: Callers) -> bool:
    return caller == callers or (not isinstance(callers, str) and caller in callers)
