"""Interleaved rounds: every contestant is timed right beside the baseline, again and again, and compared with that.

A machine drifts: its clock, its neighbours, its caches. So a ratio is never one long run over another one, but the median
of many ratios of short slices that follow each other: baseline, one, baseline, another, baseline, ...
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.checks import Contestant

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure: so many rounds of slices that take about so many seconds."""

    rounds: int
    slice_seconds: float


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and the quartiles around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) < 2:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def scaled(self, by: float) -> Spread:
        return Spread(self.median * by, self.low * by, self.high * by)

    def less(self, by: float) -> Spread:
        return Spread(self.median - by, self.low - by, self.high - by)

    def inverted(self) -> Spread:
        return Spread(1 / self.median, 1 / self.high, 1 / self.low)


@dataclass(slots=True)
class Timing:
    """What a contestant took in each round: seconds per check, those over the baseline's beside it, and those beyond it.

    `error` is what ended it, for one that could not keep up.
    """

    contestant: Contestant
    count: int = 1
    seconds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    added: list[float] = field(default_factory=list)
    error: Exception | None = None


def measure(
    baseline: Contestant, others: Sequence[Contestant], plan: Plan, clock: Clock = time.perf_counter
) -> tuple[Timing, list[Timing]]:
    """The baseline's timing, and the others' in their order; for contestants that never wait in an event loop."""
    try:
        ameasure(baseline, others, plan, clock).send(None)
    except StopIteration as end:
        result: tuple[Timing, list[Timing]] = end.value
        return result
    raise TypeError("a contestant waits for an event loop: use ameasure")


async def ameasure(
    baseline: Contestant, others: Sequence[Contestant], plan: Plan, clock: Clock = time.perf_counter
) -> tuple[Timing, list[Timing]]:
    """`measure` in an event loop."""
    # What exists already is not the measured code's to look after. What it makes itself is: the collector stays on.
    gc.collect()
    gc.freeze()
    try:
        return await _rounds(Timing(baseline), [Timing(other) for other in others], plan, clock)
    finally:
        gc.unfreeze()


async def _rounds(base: Timing, timings: list[Timing], plan: Plan, clock: Clock) -> tuple[Timing, list[Timing]]:
    for timing in (base, *timings):
        await _warm_up(timing, plan, clock)
    before = await _seconds(base, clock)
    for number in range(plan.rounds):
        for timing in _rotated(timings, number):
            took = await _seconds(timing, clock)
            after = await _seconds(base, clock)
            base.seconds.append(after)
            if timing.error is None:
                beside = (before + after) / 2
                timing.seconds.append(took)
                timing.ratios.append(took / beside)
                timing.added.append(took - beside)
            before = after
    if base.error is not None:
        raise base.error
    return base, timings


async def _warm_up(timing: Timing, plan: Plan, clock: Clock) -> None:
    """Finds how many checks fill a slice. On the way connections are opened, scripts loaded and caches filled."""
    await _seconds(timing, clock)
    while timing.error is None:
        # Twice: the first run at that pace may have opened connections.
        took = min([await _seconds(timing, clock) for _ in range(2)]) * timing.count
        if took >= plan.slice_seconds / 2:
            timing.count = max(1, round(timing.count * plan.slice_seconds / took))
            timing.contestant.failed.clear()
            return
        timing.count *= 8 if took < plan.slice_seconds / 16 else 2


async def _seconds(timing: Timing, clock: Clock) -> float:
    """One slice, in seconds per check. A contestant that fails is out: it is not asked again."""
    if timing.error is not None:
        return 0.0
    gc.collect()
    started = clock()
    try:
        running = timing.contestant.run(timing.count)
        if running is not None:
            await running
    except Exception as error:
        timing.error = error
    return (clock() - started) / timing.count


def _rotated(timings: list[Timing], number: int) -> list[Timing]:
    """Another order in each round, so that nobody always comes after the same one."""
    first = number % len(timings) if timings else 0
    return timings[first:] + timings[:first]
