"""Several plain rates in Redis, taken together: all or none, by one lean script, whose command is packed from constant parts.

Rules:
- Keys and stored states are those of `redis.lua`: both ways count in the same ones.
- What does not depend on the call is packed once: the rates, and for a caller all its keys, until a window ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from ratelimit.keys import encoded
from ratelimit.rates import Rate
from ratelimit.stores.base import Callers, Share, Taken
from ratelimit.stores.redis_plain import MAX_KEYS, number_word
from ratelimit.stores.redis_script import Script, word

Question = tuple[Script, list[str], list[int | str]]
"""Script, keys and arguments, for a redis-py client."""
Ask = Callable[["RedisJoint", Callers, int, int], Any]
"""The reply to a check, from a thread: of which rates, the callers, the cost and the time. Raises `StoreError`."""
AsyncAsk = Callable[["RedisJoint", Callers, int, int], Awaitable[Any]]
_LATEST_US: Final = 2**63


@lru_cache
def _script(*states: str) -> Script:
    pieces = ("redis_numbers.lua", *states) if states else ()
    return Script(*pieces, "redis_joint.lua")


def script_for(rates: Sequence[Rate]) -> Script:
    """The script, and in front of it what it needs for these rates."""
    buckets = ["redis_bucket_state.lua"] if any(rate.burst is not None for rate in rates) else []
    windows = ["redis_window_state.lua"] if any(rate.algorithm in ("anchored", "sliding") for rate in rates) else []
    return _script(*buckets, *windows)


class JointKeys(dict[Callers, str]):
    """The keys of each caller, packed as words of a command."""

    def __init__(self, heads: Sequence[str], tails: Sequence[str]) -> None:
        self._ends = list(zip(heads, tails, strict=True))

    def __missing__(self, callers: Callers) -> str:
        if len(self) >= MAX_KEYS:
            self.clear()
        found = self[callers] = "".join(map(word, self.keys_of(callers)))
        return found

    def keys_of(self, callers: Callers) -> list[str]:
        """The keys themselves: as `keys.stored_key` makes them."""
        each = (callers,) * len(self._ends) if isinstance(callers, str) else callers
        return [f"{head}:{{{encoded(caller)}}}:{tail}" for (head, tail), caller in zip(self._ends, each, strict=True)]


class RedisJoint:
    """Some rates, each counted under a head of its own. See `Store.joint`."""

    def __init__(self, shares: Sequence[Share], server_time: bool, ask: Ask, aask: AsyncAsk) -> None:
        self._ask, self._aask, self._server_time = ask, aask, server_time
        self._heads = [share.head for share in shares]
        self._rates = [share.rate for share in shares]
        self._weights = [share.weight for share in shares]
        if len(set(self._weights)) == 1:
            self._weights = self._weights[:1]
        self._fixed_us = [rate.window_us for rate in self._rates if rate.algorithm == "fixed"]
        self._newest = 0, 0, JointKeys((), ())  # one tuple, so that threads at a window's edge do not mix them up
        self.script = script_for(self._rates)
        self._constants = [part for rate in self._rates for part in (_kind(rate), rate.limit, rate.window_us)]
        self._constants.append(1 if server_time and len(self._fixed_us) < len(shares) else 0)
        words = 4 + len(shares) + len(self._constants) + len(self._weights)
        self._begin = f"*{words}\r\n{self.script.called}{word(len(shares))}"
        self._middle = "".join(map(word, self._constants))

    def take(self, callers: Callers, cost: int, now_us: int) -> Taken:
        """Takes `cost` units of every rate if they fit; one EVALSHA."""
        reply = self._ask(self, callers, cost, now_us)
        return min(reply) >= 0, (reply, now_us), now_us

    async def atake(self, callers: Callers, cost: int, now_us: int) -> Taken:
        """`take` for an event loop; one EVALSHA."""
        reply = await self._aask(self, callers, cost, now_us)
        return min(reply) >= 0, (reply, now_us), now_us

    def each(self, found: Any, at_us: int) -> list[Taken]:
        """See `JointCounter.each`."""
        reply, asked_us = found
        numbers = iter(reply)
        now_us = next(numbers) + at_us - asked_us  # what was denied may be told again for a while
        return [
            _window(rate, numbers, asked_us, at_us) if rate.algorithm == "fixed" else _state(rate, numbers, now_us)
            for rate in self._rates
        ]

    def command(self, callers: Callers, cost: int, now_us: int) -> bytes:
        """The check as one EVALSHA."""
        keys = self._keys(now_us)[callers]
        costs = "".join([number_word(cost * weight) for weight in self._weights])
        return f"{self._begin}{keys}{self._middle}{word(now_us)}{costs}".encode("ascii")

    def question(self, callers: Callers, cost: int, now_us: int) -> Question:
        """The check for a redis-py client."""
        costs = [cost * weight for weight in self._weights]
        return self.script, self._keys(now_us).keys_of(callers), [*self._constants, now_us, *costs]

    def _keys(self, now_us: int) -> JointKeys:
        since_us, until_us, keys = self._newest
        if not since_us <= now_us < until_us:
            keys = JointKeys(self._heads, [_tail(rate, now_us) for rate in self._rates])
            since_us = max([now_us - now_us % window_us for window_us in self._fixed_us], default=0)
            until_us = min([now_us - now_us % us + us for us in self._fixed_us], default=_LATEST_US)
            self._newest = since_us, until_us, keys
        return keys


def _kind(rate: Rate) -> str | int:
    return rate.algorithm[0] if rate.burst is None else rate.burst


def _tail(rate: Rate, now_us: int) -> str:
    return str(now_us // rate.window_us) if rate.algorithm == "fixed" else f"{rate.algorithm[0]}{rate.window}"


def _window(rate: Rate, numbers: Iterator[int], asked_us: int, at_us: int) -> Taken:
    """What was found for a fixed window at `asked_us`, as it stands at `at_us`."""
    passes, units = _units(next(numbers))
    return passes, (units if asked_us // rate.window_us == at_us // rate.window_us else 0,), at_us


def _state(rate: Rate, numbers: Iterator[int], now_us: int) -> Taken:
    """What was found for another rate, which has more numbers."""
    passes, units = _units(next(numbers))
    third, first = next(numbers), next(numbers)
    return passes, (first, units) if rate.algorithm == "anchored" else (first, units, third), now_us


def _units(found: int) -> tuple[bool, int]:
    return (True, found) if found >= 0 else (False, ~found)
