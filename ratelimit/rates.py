"""Rates and their text form: `10/m`, `5/30s`, `60/m burst 120`, `100/m sliding`, `10/m anchored`, `60/m leaky`, `10/s; 200/h`.

Rules:
- The text is read whole or refused whole: a sign, a fraction, an underscore, digits other than 0-9, a zero window or
  anything before or after is a `ConfigurationError` that names the text.
- `0/m` denies everything. "No limit" is not a rate.
- Windows are whole seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from ratelimit.errors import ConfigurationError

MAX_LIMIT = 10**12
"""Units a limit, burst or cost may reach: a count and a cost together still fit the 53 bits that Lua's numbers hold."""
MAX_WINDOW = 10 * 366 * 86_400
"""Seconds a window may last: ten years."""

_ALGORITHMS = ("fixed", "anchored", "sliding", "token_bucket", "leaky_bucket")
_BUCKETS = ("token_bucket", "leaky_bucket")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_UNIT_WORDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
}
_NAMES = {1: "second", 60: "minute", 3_600: "hour", 86_400: "day"}
_RATE = re.compile(
    r"\s*(?P<limit>[0-9]+)\s*/\s*(?:(?P<count>[0-9]+)\s*)?(?P<unit>[a-z]+)"
    r"(?:\s+(?P<mode>sliding|anchored|leaky))?(?:\s+burst\s+(?P<burst>[0-9]+))?\s*"
)
_MODES = {None: "fixed", "sliding": "sliding", "anchored": "anchored", "leaky": "leaky_bucket"}
_EXPECTED = "expected something like '10/m', '5/30s', '100/hour' or '10/s; 200/h' (units: s, m, h, d)"


class _Hashed:
    """Room for a rate's hash: tiers and stores look things up by rate at every check."""

    __slots__ = ("_hash",)

    _hash: int


@dataclass(frozen=True, slots=True)
class Rate(_Hashed):
    """How much is allowed: `limit` units per `window` seconds.

    `burst` is a bucket's capacity, None for windows. `algorithm` is `"fixed"`, `"anchored"`, `"sliding"`,
    `"token_bucket"` or `"leaky_bucket"`. `also` holds further rates that must hold at the same time (`10/s; 200/h`).
    """

    limit: int
    window: int
    burst: int | None = None
    algorithm: str = "fixed"
    also: tuple[Rate, ...] = ()

    def __post_init__(self) -> None:
        _within("limit", self.limit, 0, MAX_LIMIT)
        _within("window (seconds)", self.window, 1, MAX_WINDOW)
        if self.burst is not None:
            _within("burst", self.burst, 1, MAX_LIMIT)
        if self.algorithm not in _ALGORITHMS:
            raise ConfigurationError(f"algorithm {self.algorithm!r} is not one of {', '.join(_ALGORITHMS)}")
        if (self.algorithm in _BUCKETS) != (self.burst is not None):
            raise ConfigurationError(
                f"algorithm {self.algorithm!r} with burst {self.burst}: buckets, and only they, have one"
            )
        if self.burst is not None and self.burst * self.window > self.limit * MAX_WINDOW and self.limit:
            raise ConfigurationError(f"burst {self.burst} takes more than ten years to come back at this rate")
        if self.also:
            _distinct(self)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            # The first time. What was pickled comes without one, as texts hash differently elsewhere.
            found = hash((self.limit, self.window, self.burst, self.algorithm, self.also))
            object.__setattr__(self, "_hash", found)
            return found

    @classmethod
    def parse(cls, text: str) -> Rate:
        """The rate that `text` describes. Letter case and spaces do not matter.

        Raises `ConfigurationError` that names the text when any part of it is not understood.
        """
        if not isinstance(text, str):
            raise ConfigurationError(f"rate {text!r} is not a text: {_EXPECTED}")
        return _parse(text)

    @property
    def parts(self) -> tuple[Rate, ...]:
        """Every rate that must hold, this one first; none of them has `also`."""
        return (replace(self, also=()), *self.also) if self.also else (self,)

    @property
    def capacity(self) -> int:
        """The most that can be used at once: the burst of a bucket, else the limit."""
        return self.limit if self.burst is None else self.burst

    @property
    def window_us(self) -> int:
        """The window in microseconds."""
        return self.window * 1_000_000

    def scaled(self, factor: int, divisor: int = 1) -> Rate:
        """This rate with its limits (and bursts) times `factor`, divided by `divisor`, rounded down, from 1 to `MAX_LIMIT`.

        A limit of 0 stays 0: `0/m` denies everybody.
        """

        def scale(units: int) -> int:
            return min(max(1, units * factor // divisor), MAX_LIMIT) if units else 0

        limit, burst = scale(self.limit), None if self.burst is None else scale(self.burst)
        if burst is not None and limit:  # rounding the limit down may take it too far from the burst
            burst = min(burst, limit * MAX_WINDOW // self.window)
        return replace(
            self,
            limit=limit,
            burst=burst,
            also=tuple(rate.scaled(factor, divisor) for rate in self.also),
        )

    def describe(self) -> str:
        """In words, without `also`: `10 requests per minute`, `5 requests per 30 seconds`."""
        requests = "request" if self.limit == 1 else "requests"
        return f"{self.limit} {requests} per {_NAMES.get(self.window) or f'{self.window} seconds'}"

    def __str__(self) -> str:
        return _text(self)


class AtOnce(Rate):
    """How many at a time: `limit` connections, each for as long as it lasts. `window` is how long one counts that
    nobody speaks for any more."""

    __slots__ = ()

    def describe(self) -> str:
        """In words: `5 connections at once`."""
        return f"{self.limit} {'connection' if self.limit == 1 else 'connections'} at once"

    def __str__(self) -> str:
        return f"{self.limit} at once"


@lru_cache(maxsize=1024)
def _text(rate: Rate) -> str:
    """The shortest text that is read as this rate."""
    unit, seconds = next((u, s) for u, s in reversed(_UNITS.items()) if rate.window % s == 0)
    count = rate.window // seconds
    text = f"{rate.limit}/{count if count > 1 else ''}{unit}"
    if rate.algorithm in ("sliding", "anchored"):
        text += f" {rate.algorithm}"
    elif rate.algorithm == "leaky_bucket":
        text += " leaky" if rate.burst == 1 else f" leaky burst {rate.burst}"
    elif rate.burst is not None:
        text += f" burst {rate.burst}"
    return "; ".join([text, *map(str, rate.also)])


def _distinct(rate: Rate) -> None:
    if not isinstance(rate.also, tuple) or any(type(other) is not Rate or other.also for other in rate.also):
        raise ConfigurationError(f"also {rate.also!r} is not a tuple of single rates")
    windows = [part.window for part in (rate, *rate.also)]
    if len(set(windows)) != len(windows):
        raise ConfigurationError("one window is given twice; keep the stricter of the two")


def _within(what: str, value: int, low: int, high: int) -> None:
    if type(value) is not int:
        raise ConfigurationError(f"{what} {value!r} is not a whole number")
    if not low <= value <= high:
        raise ConfigurationError(f"{what} {value} is not between {low} and {high}")


@lru_cache(maxsize=1024)
def _parse(text: str) -> Rate:
    first, *rest = (_parse_one(part, text) for part in text.split(";"))
    try:
        return replace(first, also=tuple(rest)) if rest else first
    except ConfigurationError as error:
        raise ConfigurationError(f"rate {text!r}: {error}") from None


def _parse_one(part: str, text: str) -> Rate:
    found = _RATE.fullmatch(part.lower())
    unit = _UNIT_WORDS.get(found["unit"]) if found else None
    # lower() turns a few non-ASCII letters (such as the Kelvin sign) into ASCII ones: refuse them before that.
    if found is None or unit is None or not part.isascii():
        raise ConfigurationError(f"rate {text!r} is not understood: {_EXPECTED}")
    mode, burst = found["mode"], found["burst"]
    if burst and mode in ("sliding", "anchored"):
        raise ConfigurationError(f"rate {text!r}: a {mode} window has no burst; leave out {mode!r} for a token bucket")
    try:
        return Rate(
            limit=int(found["limit"]),
            window=int(found["count"] or 1) * unit,
            burst=int(burst) if burst else 1 if mode == "leaky" else None,
            algorithm="token_bucket" if burst and not mode else _MODES[mode],
        )
    except ValueError as error:  # out of range, or more digits than int() reads
        raise ConfigurationError(f"rate {text!r}: {error}") from None


def is_rate(rule: object) -> bool:
    """Whether `rule` is a rate, as text or as it is: no name of a category or policy has a slash."""
    return isinstance(rule, Rate) or (isinstance(rule, str) and "/" in rule)
