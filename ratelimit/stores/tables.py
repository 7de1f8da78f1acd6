"""What one rate of one group has counted in memory, by caller, in generations that are dropped whole.

Rules:
- Clock-aligned windows: a generation for each window, dropped when the window has ended, and up to a minute later for a
  clock that steps back.
- Everything else: what is kept is put into the newest generation, for `span_us`, the longest time that anything here can
  matter; then a new one is begun. After the same time again, what is still in the old one is over, and is dropped.
- In each generation `open` holds callers with units left, `spent` those without, and bans.
- What is kept is a number: a count, or a state in 64 bits for each of its parts. Sets of values and bans are kept as they are.
"""

from __future__ import annotations

from typing import Any, Final

from ratelimit.algorithms.base import State
from ratelimit.outcome import MAX_SKEW_US
from ratelimit.rates import Rate
from ratelimit.stores.shards import Key, Shards

BITS: Final = 64
LOW: Final = (1 << BITS) - 1
_MOST: Final = 8


def kept(rate: Rate, state: State) -> Any:
    """What to keep for a state of `rate`'s algorithm: one number, unless a part of it needs more than 64 bits."""
    if rate.algorithm == "fixed":
        return state[0]
    parts = _parts(rate, state)
    value = parts[0]
    for part in parts[1:]:
        if part > LOW:
            return parts
        value = value << BITS | part
    return value


def state_of(rate: Rate, value: Any) -> State:
    """The state that `kept` made `value` of."""
    if rate.algorithm == "fixed":
        return (value,)
    if rate.algorithm == "sliding":
        number, previous, units = (
            value if type(value) is tuple else (value >> 2 * BITS, value >> BITS & LOW, value & LOW)
        )
        return number, units, previous
    first, second = value if type(value) is tuple else (value >> BITS, value & LOW)
    return (first, second) if rate.algorithm == "anchored" else (first, *divmod(second, rate.window_us))


def _parts(rate: Rate, state: State) -> State:
    """A state with what is in use last."""
    if rate.algorithm == "anchored":
        return state
    first, units, rest = state
    return (first, rest, units) if rate.algorithm == "sliding" else (first, units * rate.window_us + rest)


def used(value: Any) -> int:
    """How much of a quota a kept value stands for, to compare it with others of its generation."""
    if type(value) is int:
        return value & LOW
    return len(value) if isinstance(value, set) else int(value[-1])


class Generation:
    """The callers of one window, or of one span of time: what was put in before `until_us`, and is over at `ends_us`."""

    __slots__ = ("ends_us", "open", "spent", "until_us")

    def __init__(self, until_us: int, ends_us: int) -> None:
        self.until_us = until_us
        self.ends_us = ends_us
        self.open = Shards()
        self.spent = Shards()

    @property
    def size(self) -> int:
        """Callers in it."""
        return self.open.size + self.spent.size


class Table:
    """The generations of one rate of one group. Times in microseconds; not safe under threads by itself.

    From `since_us` until `until_us` the generation at `newest` is the one to count in, and `recent` the dictionary of its
    open callers that is looked at first. At other times, `turn` comes before anything else.
    """

    __slots__ = ("_before", "aligned", "newest", "recent", "since_us", "span_us", "until_us")

    def __init__(self, span_us: int, aligned: bool) -> None:
        self.span_us = span_us
        self.aligned = aligned
        self.since_us = self.until_us = 0
        self._before: list[Generation] = []
        self.newest = Generation(0, 0)
        self.recent = self.newest.open.first

    @property
    def generations(self) -> list[Generation]:
        """All of them, the newest first."""
        return [self.newest, *self._before]

    @property
    def size(self) -> int:
        """Callers in it."""
        return sum(generation.size for generation in self.generations)

    def turn(self, now_us: int) -> list[Generation]:
        """Makes `newest` the generation of `now_us`, and gives those that are over."""
        found = self.generations
        over = [one for one in found if one.ends_us <= now_us]
        kept = [one for one in found if one.ends_us > now_us]
        if self.aligned:
            self.since_us = now_us - now_us % self.span_us
            self.newest = _until(self.since_us + self.span_us, kept) or self._window(self.since_us + self.span_us)
        elif not self._lasts(now_us):
            self.since_us = now_us
            self.newest = Generation(now_us + self.span_us, now_us + 2 * self.span_us)
        else:
            self.since_us = min(self.since_us, now_us)
        self.recent = self.newest.open.first
        self._before = [one for one in kept if one is not self.newest and one.size]
        # It is time to turn again when one of them is over.
        self.until_us = min([self.newest.until_us, *(one.ends_us for one in self._before)])
        return over

    def widen(self, span_us: int) -> None:
        """Has things kept for `span_us`, if that is longer than until now."""
        if not self.aligned and span_us > self.span_us:
            more_us = span_us - self.span_us
            self.span_us = span_us
            self.newest.until_us += more_us
            self.newest.ends_us += 2 * more_us

    def at(self, at_us: int) -> Generation:
        """The generation of the window that holds `at_us`."""
        if not self.aligned or self.since_us <= at_us < self.since_us + self.span_us:
            return self.newest
        until_us = at_us - at_us % self.span_us + self.span_us
        found = _until(until_us, self._before)
        if found is None:
            found = self._window(until_us)
            self._before.append(found)
        return found

    def get(self, key: Key, at_us: int) -> tuple[Any, Shards | None]:
        """What is kept for `key`, and where: in the window that holds `at_us`, else in any generation."""
        for generation in [self.at(at_us)] if self.aligned else self.generations:
            for shards in (generation.open, generation.spent):
                found = shards.get(key)
                if found is not None:
                    return found, shards
        return None, None

    def _window(self, until_us: int) -> Generation:
        return Generation(until_us, until_us + min(self.span_us, MAX_SKEW_US))

    def _lasts(self, now_us: int) -> bool:
        """Whether `newest` is still to be put into. Not when the clock was put right by more than nodes may differ: it would
        last too long. If that happens all the time, generations must not pile up."""
        until_us = self.newest.until_us
        return now_us < until_us and (until_us - now_us <= self.span_us + MAX_SKEW_US or len(self._before) >= _MOST)


def _until(until_us: int, generations: list[Generation]) -> Generation | None:
    return next((one for one in generations if one.until_us == until_us), None)
