"""A great many callers in this process's memory: what each of them weighs, and how long the longest call takes.

Weight: what tracemalloc finds more after a check for each caller, the text that names it included. Longest call: every
check is timed by itself, and the slowest counts. Three laps, each over all the callers: the first meets them for the first
time, in the second they are known, and in the third the clock has jumped past every window, so that all that was stored has
expired (only the engine takes a clock). In a long run that is done with three of the engine's stores, and the figure is the
median: what a store does itself, it does each time; what the machine does, now and then. The collector is on, and its longest
run is noted: a store of many small objects has long ones. "Own time" is the calling thread's CPU time: what the machine's
other work took from the call is not in it; neither is what the call waited for another thread, which the wall's time has.
"""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import nlargest
from importlib.util import find_spec
from statistics import median
from typing import NamedTuple

from benchmarks.checks import Goal
from benchmarks.peers import ROOM
from benchmarks.report import Figure, Row, number
from benchmarks.rounds import Spread
from benchmarks.setting import Setting
from ratelimit import Limiter, MemoryStore, Rate

WEIGHT, LONGEST = Goal(140, 100), Goal(1.0, 1.0)
YEARS_US = 20 * 366 * 86_400_000_000
LIMIT = 1_000
WINDOW = f"{LIMIT}/d"
BUCKET = f"1/d burst {LIMIT}"
"""Nothing of it is refilled while it is measured."""

Ask = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Asked:
    """A fresh store and how to ask it; `jump` passes every window's end, where that can be done."""

    name: str
    ask: Ask
    ours: bool = False
    jump: Callable[[], object] | None = None


def rows(setting: Setting) -> Iterator[Row]:
    many = 1_000_000 if setting.long else 20_000
    own = [_plain, _window, _bucket]
    peers = [make for package, make in {"limits": _limits, "throttled": _throttled}.items() if find_spec(package)]
    makers = [*own, *peers]
    yield Row("keys", f"{many:,} callers, each one's weight", "B", True, [_weighed(make(), many) for make in makers])
    laps = [same for make in own for same in _repeated(make, many, 3 if setting.long else 1)]
    laps += [same for make in peers for same in _repeated(make, many, 1)]
    figures = [_longest(same, [lap.own for lap in same], LONGEST) for same in laps]
    yield Row("keys", f"{many:,} callers, the longest call, own time", "ms", True, figures)
    figures = [_longest(same, [lap.wall for lap in same]) for same in laps]
    yield Row("keys", f"{many:,} callers, the longest call, by the wall", "ms", True, figures)


def _weighed(asked: Asked, many: int) -> Figure:
    gc.collect()
    tracemalloc.start(1)
    try:
        for index in range(many):
            asked.ask(f"user:{index}")
        gc.collect()
        weight = tracemalloc.get_traced_memory()[0] / many
    finally:
        tracemalloc.stop()
    return Figure(asked.name, Spread.of([weight]), asked.ours, WEIGHT if asked.ours else None)


class Slowest(NamedTuple):
    """The longest call, and what all but one in ten thousand did not exceed, in milliseconds."""

    longest: float
    rest: float

    @classmethod
    def of(cls, took_ns: list[int]) -> Slowest:
        slowest = nlargest(1 + len(took_ns) // 10_000, took_ns)
        return cls(slowest[0] / 1e6, slowest[-1] / 1e6)


@dataclass(frozen=True, slots=True)
class Lap:
    """One call for each caller: its own time and the wall's, and the collector's longest run."""

    name: str
    ours: bool
    own: Slowest
    wall: Slowest
    collection_ns: int


def _repeated(make: Callable[[], Asked], many: int, again: int) -> Iterator[tuple[Lap, ...]]:
    """Each lap with so many stores, one store after the other."""
    return zip(*[list(_laps(make(), many)) for _ in range(again)], strict=True)


def _laps(asked: Asked, many: int) -> Iterator[Lap]:
    yield _lap(asked, "new callers", many)
    yield _lap(asked, "known callers", many)
    if asked.jump is not None:
        asked.jump()
        yield _lap(asked, "all expired", many)


def _lap(asked: Asked, name: str, many: int) -> Lap:
    ask, own_clock, wall_clock = asked.ask, time.thread_time_ns, time.perf_counter_ns
    own, wall = [0] * many, [0] * many
    gc.collect()
    with _longest_collection() as collection:
        for index in range(many):
            caller = f"user:{index}"
            wall_start, own_start = wall_clock(), own_clock()
            ask(caller)
            own[index], wall[index] = own_clock() - own_start, wall_clock() - wall_start
    return Lap(f"{asked.name}, {name}", asked.ours, Slowest.of(own), Slowest.of(wall), max(collection))


@contextmanager
def _longest_collection() -> Iterator[list[int]]:
    """How long each run of the collector took, in nanoseconds."""
    took = [0]

    def note(phase: str, _: object) -> None:
        took.append(time.thread_time_ns() if phase == "start" else time.thread_time_ns() - took.pop())

    gc.callbacks.append(note)
    try:
        yield took
    finally:
        gc.callbacks.remove(note)


def _longest(laps: Sequence[Lap], times: Sequence[Slowest], goal: Goal | None = None) -> Figure:
    """The same lap with several stores."""
    name, ours = laps[0].name, laps[0].ours
    rest = f"99.99 % within {number(median(time.rest for time in times))} ms"
    collection_ns = median(lap.collection_ns for lap in laps)
    if collection_ns > 100_000:
        rest += f", longest collection {number(collection_ns / 1e6)} ms"
    longest = Spread.of([time.longest for time in times])
    return Figure(name, longest, ours, goal if ours else None, rest)


@dataclass(slots=True)
class _Clock:
    """The wall clock, and a step ahead."""

    ahead_us: int = field(default=0)

    def __call__(self) -> int:
        return time.time_ns() // 1000 + self.ahead_us

    def jump(self) -> None:
        self.ahead_us += YEARS_US


def _plain() -> Asked:
    lock, counts = threading.Lock(), dict[str, int]()

    def ask(caller: str) -> None:
        with lock:
            counts[caller] = counts.get(caller, 0) + 1

    return Asked("a plain dict under a lock", ask)


def _window() -> Asked:
    return _ours("fixed window", WINDOW)


def _bucket() -> Asked:
    return _ours("token bucket", BUCKET)


def _ours(how: str, text: str) -> Asked:
    clock, rate = _Clock(), Rate.parse(text)
    check = Limiter(MemoryStore(ROOM), clock=clock).check
    return Asked(f"ratelimit, {how}", lambda caller: check(rate, caller), True, clock.jump)


def _limits() -> Asked:
    from limits import parse
    from limits.storage import MemoryStorage
    from limits.strategies import FixedWindowRateLimiter

    window, item = FixedWindowRateLimiter(MemoryStorage()), parse(f"{LIMIT}/day")
    return Asked("limits, fixed window", lambda caller: window.hit(item, caller))


def _throttled() -> Asked:
    from throttled import MemoryStore as ThrottledStore
    from throttled import Throttled, per_day

    limit = Throttled(
        using="fixed_window", quota=per_day(LIMIT), store=ThrottledStore(options={"MAX_SIZE": ROOM})
    ).limit
    return Asked("throttled-py, fixed window", lambda caller: limit(caller))
