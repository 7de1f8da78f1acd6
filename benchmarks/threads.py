"""Eight threads that ask in this process's memory: as fast as one, and exact while they get in each other's way.

Speed: checks a second of eight threads, over those of one in the slice beside. Exactness: a limit of 1,000 for a day is
asked 2,000 times by eight threads that are switched every microsecond; the figure is how many passed, per 1,000.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from benchmarks import ours, peers
from benchmarks.checks import Check, Goal
from benchmarks.memory import counted
from benchmarks.rates import ONE
from benchmarks.report import Figure, Row, speed
from benchmarks.rounds import Spread, measure
from benchmarks.setting import Setting
from ratelimit import Limiter, MemoryStore, Rate

THREADS = 8
SWITCH_SECONDS = 1e-6
LIMIT = 1_000
GOAL = Goal(0.9, 1.0)
EXACT = Goal(1.0, 1.0)

Ask = Callable[[str], bool]


def rows(setting: Setting) -> Iterator[Row]:
    checks = [*ours.checks(MemoryStore(), ONE, GOAL)[:2], *peers.memory(ONE), counted(ONE)]
    figures = [_eight_over_one(setting, check) for check in checks]
    yield Row("threads", "eight over one, hot key", "x", False, figures, "its own single thread")
    yield exactness(10 if setting.long else 3)


def _eight_over_one(setting: Setting, check: Check) -> Figure:
    timed = measure(check.by_threads(1), [check.by_threads(THREADS)], setting.plan(15, 0.2))
    figure = speed("", "", timed).figures[0]
    return Figure(check.name, figure.value, check.ours, check.goal, figure.note)


def exactness(repeats: int) -> Row:
    """How much of the limit was admitted, in each of so many repeats."""
    makers = {"limits": _limits, "throttled": _throttled, "pyrate_limiter": _pyrate}
    asks = [*_ours(), *(ask for package, make in makers.items() if find_spec(package) for ask in make())]
    figures = []
    for name, ask in asks:
        shares = Spread.of([admitted(ask, f"user:{number}") / LIMIT for number in range(repeats)])
        figures.append(
            Figure(name, shares, name.startswith("ratelimit"), EXACT if name.startswith("ratelimit") else None)
        )
    return Row("threads", f"admitted of {LIMIT:,}, switched every microsecond", "x", True, figures, "the limit")


def admitted(ask: Ask, caller: str) -> int:
    """How many of twice the limit's calls pass."""
    share = range(2 * LIMIT // THREADS)
    with _switching_every(SWITCH_SECONDS), ThreadPoolExecutor(THREADS) as threads:
        return sum(threads.map(lambda _: sum(bool(ask(caller)) for _ in share), range(THREADS)))


@contextmanager
def _switching_every(seconds: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _ours() -> list[tuple[str, Ask]]:
    limiter = Limiter(MemoryStore())
    window, bucket = Rate.parse(f"{LIMIT}/d"), Rate.parse(f"{LIMIT}/d burst {LIMIT}")
    return [
        ("ratelimit, fixed window", lambda caller: bool(limiter.check(window, caller, group="window"))),
        ("ratelimit, token bucket", lambda caller: bool(limiter.check(bucket, caller, group="bucket"))),
    ]


def _limits() -> list[tuple[str, Ask]]:
    from limits import parse
    from limits.storage import MemoryStorage
    from limits.strategies import FixedWindowRateLimiter

    window, item = FixedWindowRateLimiter(MemoryStorage()), parse(f"{LIMIT}/day")
    return [("limits, fixed window", lambda caller: window.hit(item, caller))]


def _throttled() -> list[tuple[str, Ask]]:
    from throttled import MemoryStore, Throttled, per_day

    bucket = Throttled(using="gcra", quota=per_day(LIMIT, burst=LIMIT), store=MemoryStore())
    return [("throttled-py, GCRA", lambda caller: not bucket.limit(caller).limited)]


def _pyrate() -> list[tuple[str, Ask]]:
    from pyrate_limiter import GCRA, Duration, Limiter, Rate, StateBucket

    buckets: dict[str, Any] = {}

    def ask(caller: str) -> bool:
        limiter = buckets.get(caller)
        if limiter is None:
            limiter = buckets.setdefault(caller, Limiter(StateBucket([Rate(LIMIT, Duration.DAY)], GCRA())))
        return bool(limiter.try_acquire(caller, blocking=False))

    return [("pyrate-limiter, GCRA", ask)]
