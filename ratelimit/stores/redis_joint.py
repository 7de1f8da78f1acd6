"""Several plain rates in Redis, taken together: all or none, by one lean script, whose command is packed from constant parts.

Rules:
- Keys and stored states are those of `redis.lua`: both ways count in the same ones.
- What does not depend on the call is packed once: for a caller all its keys, until a window ends; the rates, and with them the
  lifetimes of new keys, for a second.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from ratelimit.keys import encoded
from ratelimit.rates import Rate
from ratelimit.stores.base import Callers, Share, Taken
from ratelimit.stores.redis_plain import MAX_KEYS, number_word
from ratelimit.stores.redis_script import Script, word
from ratelimit.stores.redis_wire import SECOND_US, lifetime_ms

Question = tuple[Script, list[str], list[int | str]]
"""Script, keys and arguments, for a redis-py client."""
Ask = Callable[["RedisJoint", Callers, int, int], Any]
"""The reply to a check, from a thread: of which rates, the callers, the cost and the time. Raises `StoreError`."""
AsyncAsk = Callable[["RedisJoint", Callers, int, int], Awaitable[Any]]


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
    """The keys of each caller, packed as words of a command. `ends` are what comes before and after the caller."""

    def __init__(self, heads: Sequence[str], tails: Sequence[str]) -> None:
        self.ends = list(zip(heads, tails, strict=True))

    def __missing__(self, callers: Callers) -> str:
        if len(self) >= MAX_KEYS:
            self.clear()
        found = self[callers] = "".join(map(word, self.keys_of(callers)))
        return found

    def keys_of(self, callers: Callers) -> list[str]:
        """The keys themselves: as `keys.stored_key` makes them."""
        each = (callers,) * len(self.ends) if isinstance(callers, str) else callers
        return [f"{head}:{{{encoded(caller)}}}:{tail}" for (head, tail), caller in zip(self.ends, each, strict=True)]


Packed = tuple[int, int, JointKeys, list[int | str], str]
"""From when and until when it holds; the keys; the rates as arguments, and as words."""


class RedisJoint:
    """Some rates, each counted under a head of its own. See `Store.joint`."""

    def __init__(self, shares: Sequence[Share], server_time: bool, ask: Ask, aask: AsyncAsk) -> None:
        self._ask, self._aask = ask, aask
        self._heads = [share.head for share in shares]
        self._rates = [share.rate for share in shares]
        self._weights = [share.weight for share in shares]
        if len(set(self._weights)) == 1:
            self._weights = self._weights[:1]
        self._timed = any(rate.algorithm != "fixed" for rate in self._rates)
        self._asks_node = self._timed and not server_time
        self.script = script_for(self._rates)
        words = 4 + len(shares) * 4 + len(self._weights)
        self._begin = f"*{words}\r\n{self.script.called}{word(len(shares))}"
        self._one = "".join(map(word, self._rest(1, 0)))
        # One tuple, so that threads at a window's edge do not mix them up: the keys, and the rates as arguments and as words.
        self._newest: Packed = (0, 0, JointKeys((), ()), [], "")

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
        _, _, keys, _, rates = self._packed(now_us)
        constant = cost == 1 and not self._asks_node
        rest = self._one if constant else "".join(map(number_word, self._rest(cost, now_us)))
        return f"{self._begin}{keys[callers]}{rates}{rest}".encode("ascii")

    def question(self, callers: Callers, cost: int, now_us: int) -> Question:
        """The check for a redis-py client."""
        _, _, keys, rates, _ = self._packed(now_us)
        return self.script, keys.keys_of(callers), [*rates, *self._rest(cost, now_us)]

    def _rest(self, cost: int, now_us: int) -> list[int]:
        """The arguments after the rates. The time is the node's or, said by 0, the server's; fixed windows need none."""
        time = now_us if self._asks_node else 0 if self._timed else 1
        return [time, *(cost * weight for weight in self._weights)]

    def _packed(self, now_us: int) -> Packed:
        newest = self._newest
        return newest if newest[0] <= now_us < newest[1] else self._turn(now_us)

    def _turn(self, now_us: int) -> Packed:
        """A second begins, and with it perhaps a window."""
        since_us = now_us - now_us % SECOND_US
        keys, rates = self._newest[2], [part for rate in self._rates for part in _arguments(rate, now_us)]
        new = JointKeys(self._heads, [_tail(rate, now_us) for rate in self._rates])
        if keys.ends != new.ends:
            keys = new
        self._newest = turned = since_us, since_us + SECOND_US, keys, rates, "".join(map(word, rates))
        return turned


def _arguments(rate: Rate, now_us: int) -> tuple[int | str, int, int]:
    if rate.algorithm == "fixed":
        return "f", rate.limit, lifetime_ms(rate, now_us)
    return rate.algorithm[0] if rate.burst is None else rate.burst, rate.limit, rate.window_us


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
