"""The budgets of the reference model: what each algorithm remembers, and how its use falls.

A budget never changes; what happens to it gives another one. Three rules hold for all:

- What changes nothing leaves the budget as it was, the moment of its last change included.
- A budget that is ahead of the clock, because the clock stepped back, holds the clock: until the clock has caught up, nothing
  falls. Ahead by more than `MAX_SKEW_US` it is forgotten.
- `ended` tells what a store may have let go of by now, by a moment in each window concerned: it would not matter again
  unless the clock stepped back or, for a bucket, unless its rate became slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Protocol

from ratelimit.outcome import MAX_SKEW_US, Charge
from ratelimit.rates import Rate

Exact = int | Fraction
Course = list[tuple[Exact, Exact]]
"""Corner points (instant in microseconds, units in use) of a line that falls, from now on; flat after the last."""


class Budget(Protocol):
    def course(self, rate: Rate, now_us: int) -> Course: ...
    def adds(self, charges: Sequence[Charge], now_us: int) -> int: ...
    def take(self, charge: Charge, now_us: int) -> Budget: ...
    def settle(self, charge: Charge, now_us: int, taken_us: int) -> Budget: ...
    def clear(self, now_us: int) -> Budget: ...
    def ended(self, now_us: int) -> list[int]: ...


def new(charge: Charge) -> Budget:
    """The budget of a caller never seen."""
    if charge.member is not None:
        return Distinct(charge.rate.window_us)
    if charge.rate.algorithm in ("token_bucket", "leaky_bucket"):
        return Bucket()
    kinds = {"fixed": Fixed, "anchored": Anchored, "sliding": Sliding}
    return kinds[charge.rate.algorithm](charge.rate.window_us)


def _sum(charges: Sequence[Charge]) -> int:
    return sum(charge.cost for charge in charges)


@dataclass(frozen=True)
class Fixed:
    """Units by window, windows numbered from the epoch. Each window knows only itself."""

    window_us: int
    units: Mapping[int, int] = field(default_factory=dict)

    def course(self, rate: Rate, now_us: int) -> Course:
        number = now_us // self.window_us
        units, end = self.units.get(number, 0), (number + 1) * self.window_us
        return [(now_us, units), (end, units), (end, 0)]

    def adds(self, charges: Sequence[Charge], now_us: int) -> int:
        return _sum(charges)

    def take(self, charge: Charge, now_us: int) -> Fixed:
        return self.settle(charge, now_us, now_us)

    def settle(self, charge: Charge, now_us: int, taken_us: int) -> Fixed:
        number = taken_us // self.window_us
        return replace(self, units={**self.units, number: max(0, self.units.get(number, 0) + charge.cost)})

    def clear(self, now_us: int) -> Fixed:
        gone = now_us // self.window_us
        return replace(self, units={number: units for number, units in self.units.items() if number != gone})

    def ended(self, now_us: int) -> list[int]:
        return _over(self.units, self.window_us, now_us)


def _over(numbers: Mapping[int, object], window_us: int, now_us: int) -> list[int]:
    kept_us = window_us + min(window_us, MAX_SKEW_US)  # a little longer than the window, for clocks that are behind
    return [number * window_us for number in numbers if number * window_us + kept_us <= now_us]


@dataclass(frozen=True)
class Anchored:
    """Units in the window that began at `since_us`, with the first call that was counted."""

    window_us: int
    since_us: int | None = None
    units: int = 0

    def _at(self, now_us: int) -> Anchored:
        ahead = self.since_us is not None and self.since_us - now_us > MAX_SKEW_US
        if self.since_us is None or ahead or now_us >= self.since_us + self.window_us:
            return Anchored(self.window_us, now_us, 0)
        return self

    def course(self, rate: Rate, now_us: int) -> Course:
        found = self._at(now_us)
        end = found.since_us + self.window_us
        return [(now_us, found.units), (end, found.units), (end, 0)]

    def adds(self, charges: Sequence[Charge], now_us: int) -> int:
        return _sum(charges)

    def take(self, charge: Charge, now_us: int) -> Anchored:
        found = self._at(now_us)
        return replace(found, units=found.units + charge.cost) if charge.cost else self

    def settle(self, charge: Charge, now_us: int, taken_us: int) -> Anchored:
        found = self._at(now_us)
        units = max(0, found.units + charge.cost)
        return replace(found, units=units) if taken_us >= found.since_us and units != found.units else self

    def clear(self, now_us: int) -> Anchored:
        return Anchored(self.window_us)

    def ended(self, now_us: int) -> list[int]:
        return [now_us] if self.since_us is not None and self.since_us + self.window_us <= now_us else []


@dataclass(frozen=True)
class Sliding:
    """Units by window; the last window counts by the share of it that is still in view."""

    window_us: int
    newest: int | None = None
    units: Mapping[int, int] = field(default_factory=dict)

    def _at(self, now_us: int) -> Sliding:
        number = now_us // self.window_us
        if self.newest is None or self.newest * self.window_us - now_us > MAX_SKEW_US:
            return Sliding(self.window_us, number)
        return replace(self, newest=max(number, self.newest))

    def course(self, rate: Rate, now_us: int) -> Course:
        found = self._at(now_us)
        start, end = found.newest * self.window_us, (found.newest + 1) * self.window_us
        held_us = max(now_us, start)
        units, previous = found.units.get(found.newest, 0), found.units.get(found.newest - 1, 0)
        in_use = units + previous * Fraction(end - held_us, self.window_us)
        return [(now_us, in_use), (held_us, in_use), (end, units), (end + self.window_us, 0)]

    def adds(self, charges: Sequence[Charge], now_us: int) -> int:
        return _sum(charges)

    def take(self, charge: Charge, now_us: int) -> Sliding:
        return self.settle(charge, now_us, self._at(now_us).newest * self.window_us)

    def settle(self, charge: Charge, now_us: int, taken_us: int) -> Sliding:
        found = self._at(now_us)
        number = min(taken_us // self.window_us, found.newest)
        before = found.units.get(number, 0)
        after = max(0, before + charge.cost)
        if number < found.newest - 1 or after == before:
            return self
        return replace(found, units={**found.units, number: after})

    def clear(self, now_us: int) -> Sliding:
        return Sliding(self.window_us)

    def ended(self, now_us: int) -> list[int]:
        return [now_us] if self.newest is not None and (self.newest + 2) * self.window_us <= now_us else []


@dataclass(frozen=True)
class Bucket:
    """The level at `since_us`, in units; it falls by `limit` in every `window`. `rate` was asked for at the last change."""

    since_us: int | None = None
    level: Fraction = Fraction(0)
    rate: Rate | None = None

    def _at(self, rate: Rate, now_us: int) -> Bucket:
        if self.since_us is None or self.since_us - now_us > MAX_SKEW_US:
            return Bucket(now_us)
        if now_us <= self.since_us:
            return self
        freed = (now_us - self.since_us) * Fraction(rate.limit, rate.window_us)
        return Bucket(now_us, max(Fraction(0), self.level - freed), self.rate)

    def course(self, rate: Rate, now_us: int) -> Course:
        found = self._at(rate, now_us)
        held: Course = [(now_us, found.level), (found.since_us, found.level)]
        empty_us = found.since_us + found.level * Fraction(rate.window_us, rate.limit) if rate.limit else None
        return held if empty_us is None else [*held, (empty_us, 0)]

    def adds(self, charges: Sequence[Charge], now_us: int) -> int:
        return _sum(charges)

    def take(self, charge: Charge, now_us: int) -> Bucket:
        return self.settle(charge, now_us, now_us)

    def settle(self, charge: Charge, now_us: int, taken_us: int) -> Bucket:
        found = self._at(charge.rate, now_us)
        level = max(Fraction(0), found.level + charge.cost)
        return self if level == found.level else Bucket(found.since_us, level, charge.rate)

    def clear(self, now_us: int) -> Bucket:
        return Bucket()

    def ended(self, now_us: int) -> list[int]:
        if self.since_us is None or self.rate is None:
            return []
        return [now_us] if self.course(self.rate, self.since_us)[-1][0] <= now_us else []


@dataclass(frozen=True)
class Distinct:
    """Different values by window, windows numbered from the epoch."""

    window_us: int
    values: Mapping[int, frozenset[str | None]] = field(default_factory=dict)

    def _values(self, now_us: int) -> frozenset[str | None]:
        return self.values.get(now_us // self.window_us, frozenset())

    def course(self, rate: Rate, now_us: int) -> Course:
        return Fixed(self.window_us, {now_us // self.window_us: len(self._values(now_us))}).course(rate, now_us)

    def adds(self, charges: Sequence[Charge], now_us: int) -> int:
        return len({charge.member for charge in charges if charge.cost} - self._values(now_us))

    def take(self, charge: Charge, now_us: int) -> Distinct:
        if not charge.cost:
            return self
        return replace(self, values={**self.values, now_us // self.window_us: self._values(now_us) | {charge.member}})

    def settle(self, charge: Charge, now_us: int, taken_us: int) -> Distinct:
        return self

    def clear(self, now_us: int) -> Distinct:
        gone = now_us // self.window_us
        return replace(self, values={number: seen for number, seen in self.values.items() if number != gone})

    def ended(self, now_us: int) -> list[int]:
        return _over(self.values, self.window_us, now_us)
