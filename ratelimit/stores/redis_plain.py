"""How plain charges of one rate are asked for and answered: the lean script of its algorithm, its words, its reply.

Rules:
- Keys and stored states are those of `redis.lua`: both ways count in the same ones.
- A check that is refused is told from one that passes by the sign: `~units` instead of `units`.
- What is alike for all checks of a command is said once; a cost or a time that differs is said for each.
- A single check has a reply without a list around it, as a rule: for one number or text the server does less. An error that
  it meets is the reply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, Final, Protocol

from ratelimit.keys import encoded
from ratelimit.rates import Rate
from ratelimit.stores.base import Taken
from ratelimit.stores.redis_script import Script, word
from ratelimit.stores.redis_wire import SECOND_US, lifetime_ms

AsyncAsk = Callable[[Script, list[str], Sequence[int | str]], Awaitable[Any]]
"""Runs a script with keys and arguments; raises `StoreError`."""

MAX_KEYS: Final = 2048
"""Callers whose key a counter keeps packed."""
_FIXED: Final = Script("redis_fixed.lua")
_BUCKET: Final = Script("redis_numbers.lua", "redis_bucket_state.lua", "redis_bucket.lua")
_WINDOWS: Final = Script("redis_numbers.lua", "redis_window_state.lua", "redis_windows.lua")
_ALIKE: Final = 5  # arguments of a command whose checks are alike, at most


class Keys(dict[str, str]):
    """The key of each caller, packed as a word of a command; for windows with a number, those of one window."""

    def __init__(self, head: str, tail: str) -> None:
        self._head, self._tail = head, tail

    def __missing__(self, caller: str) -> str:
        if len(self) >= MAX_KEYS:
            self.clear()
        found = self[caller] = word(self.key(caller))
        return found

    def key(self, caller: str) -> str:
        """The key itself: as `keys.stored_key` makes it."""
        return f"{self._head}:{{{encoded(caller)}}}:{self._tail}"


class Plain(Protocol):
    """The way to ask for plain charges of one rate under one head."""

    @property
    def script(self) -> Script: ...

    @property
    def width(self) -> int:
        """How many numbers of the reply are about one check: its last ones, and the first of each may be an error."""
        ...

    def keys(self, now_us: int) -> Keys:
        """The keys of checks at `now_us`. Checks whose `Keys` differ do not go in one command."""
        ...

    def arguments(self, costs: Sequence[int], times: Sequence[int]) -> tuple[int | str, ...]:
        """What follows the keys in a command for so many checks."""
        ...

    def asked(self, key: str, cost: int, now_us: int) -> bytes:
        """One EVALSHA for a single check; `key` is packed."""
        ...

    def taken(self, reply: Sequence[Any], times: Sequence[int]) -> list[Taken]:
        """What became of each of several checks. TypeError if there is an error among the numbers."""
        ...

    def one_taken(self, reply: Any, cost: int, now_us: int) -> Taken:
        """What became of a single check."""
        ...


def plain(head: str, rate: Rate, server_time: bool) -> Plain:
    """The way to count `rate` under `head`."""
    return _Fixed(head, rate) if rate.algorithm == "fixed" else _Timed(head, rate, server_time)


class _Fixed:
    """Clock-aligned windows, numbered by the node's clock."""

    script, width = _FIXED, 1

    def __init__(self, head: str, rate: Rate) -> None:
        self._head, self._rate = head, rate
        self._begin = _begin(self.script, 3)
        # One tuple, so that threads at a window's edge do not mix them up: the keys of a window, and for each second of it
        # what follows the key in a check of one unit.
        self._newest = 0, 0, Keys(head, "0"), ""

    def keys(self, now_us: int) -> Keys:
        since_us, until_us, keys, _ = self._newest
        return keys if since_us <= now_us < until_us else self._turn(now_us)[2]

    def arguments(self, costs: Sequence[int], times: Sequence[int]) -> tuple[int | str, ...]:
        lifetime = lifetime_ms(self._rate, min(times))
        return self._rate.limit, lifetime, *(costs[:1] if _alike(costs) else costs)

    def asked(self, key: str, cost: int, now_us: int) -> bytes:
        since_us, until_us, _, tail = self._newest
        if cost != 1 or not since_us <= now_us < until_us:
            tail = _tail(self.arguments((cost,), (now_us,)))
        return f"{self._begin}{key}{tail}".encode("ascii")

    def taken(self, reply: Sequence[Any], times: Sequence[int]) -> list[Taken]:
        return [
            (True, (used,), at_us) if used >= 0 else (False, (~used,), at_us)
            for used, at_us in zip(reply, times, strict=True)
        ]

    def one_taken(self, reply: Any, cost: int, now_us: int) -> Taken:
        return (True, (reply,), now_us) if reply >= 0 else (False, (~reply,), now_us)

    def _turn(self, now_us: int) -> tuple[int, int, Keys, str]:
        """A second begins, and with it perhaps a window."""
        window_us = self._rate.window_us
        before_us, _, keys, _ = self._newest
        since_us = now_us - now_us % SECOND_US
        if before_us // window_us != now_us // window_us:
            keys = Keys(self._head, str(now_us // window_us))
        self._newest = found = since_us, since_us + SECOND_US, keys, _tail(self.arguments((1,), (now_us,)))
        return found


class _Timed:
    """Everything that needs the time: by the server's clock, or by the node's if it is to decide."""

    width = 3

    def __init__(self, head: str, rate: Rate, server_time: bool) -> None:
        bucket = rate.burst is not None
        self.script = _BUCKET if bucket else _WINDOWS
        self._keys = Keys(head, f"{rate.algorithm[0]}{rate.window}")
        self._constants = rate.limit, rate.capacity if bucket else rate.algorithm[0], rate.window_us
        self._server_time = server_time
        self._length = 2 if rate.algorithm == "anchored" else 3
        self._begin = _begin(self.script, 5)
        self._one = _tail((*self._constants, 0, 1))

    def keys(self, now_us: int) -> Keys:
        return self._keys

    def arguments(self, costs: Sequence[int], times: Sequence[int]) -> tuple[int | str, ...]:
        if self._server_time:
            times = (0,) * len(costs)
        if _alike(costs) and _alike(times):
            return *self._constants, times[0], costs[0]
        return *self._constants, *chain.from_iterable(zip(times, costs, strict=True))

    def asked(self, key: str, cost: int, now_us: int) -> bytes:
        tail = self._one if cost == 1 and self._server_time else _tail(self.arguments((cost,), (now_us,)))
        return f"{self._begin}{key}{tail}".encode("ascii")

    def taken(self, reply: Sequence[Any], times: Sequence[int]) -> list[Taken]:
        numbers, length = iter(reply), self._length
        now_us = next(numbers)
        found = zip(numbers, numbers, numbers, repeat(now_us) if self._server_time else times, strict=False)
        if length == 2:
            return [
                (True, (first, units), at_us) if units >= 0 else (False, (first, ~units), at_us)
                for units, _, first, at_us in found
            ]
        return [
            (True, (first, units, third), at_us) if units >= 0 else (False, (first, ~units, third), at_us)
            for units, third, first, at_us in found
        ]

    def one_taken(self, reply: Any, cost: int, now_us: int) -> Taken:
        if type(reply) is not list:  # a bucket's state after a check that passed, last changed by it
            last, after, share = map(int, reply.split())
            return True, (last, after - cost, share), last
        at_us, units, third, first = reply
        passes = units >= 0
        state = (first, units if passes else ~units, third)[: self._length]
        return passes, state, at_us


def command(of: Plain, keys: Sequence[str], costs: Sequence[int], times: Sequence[int]) -> bytes:
    """One EVALSHA for several checks of one rate; `keys` are packed."""
    arguments = of.arguments(costs, times)
    tail = _tail(arguments) if len(arguments) <= _ALIKE else "".join(map(word, arguments))
    called, number = of.script.called, len(keys)
    return f"*{3 + number + len(arguments)}\r\n{called}{number_word(number)}{''.join(keys)}{tail}".encode("ascii")


def question(of: Plain, caller: str, cost: int, now_us: int) -> tuple[Script, list[str], tuple[int | str, ...]]:
    """A single check for a redis-py client: script, keys and arguments."""
    return of.script, [of.keys(now_us).key(caller)], of.arguments((cost,), (now_us,))


Ask = Callable[[Plain, str, int, int], Any]
"""The reply to a single check, from a thread: of which rate, the caller, the cost and the time. Raises `StoreError`."""


def errors(of: Plain, reply: list[Any], checks: int) -> dict[int, Exception]:
    """Takes the errors out of the reply to so many checks, so that `taken` reads it; by the check's place."""
    start = len(reply) - checks * of.width
    found: dict[int, Exception] = {}
    for place in range(checks):
        at = start + place * of.width
        if isinstance(reply[at], Exception):
            found[place], reply[at] = reply[at], 0
    return found


def _begin(script: Script, arguments: int) -> str:
    """What a command for one key begins with."""
    return f"*{4 + arguments}\r\n{script.called}{word(1)}"


def _alike(numbers: Sequence[int]) -> bool:
    return len(numbers) == 1 or numbers.count(numbers[0]) == len(numbers)


@lru_cache
def _tail(arguments: tuple[int | str, ...]) -> str:
    return "".join(map(word, arguments))


number_word = lru_cache(word)
"""`word` of a number that is often needed."""
