"""Open arrivals: checks come when they come (Poisson), whether or not the ones before were answered, as requests do.

So many a second are offered to one process on one core; the server has the other one. The wait of a check counts from the
moment it was due, so a loop that falls behind is not forgiven. Lost is what failed, was decided without the store, or came
while 1,024 were unanswered. The figure is the 99th percentile of the waits, in milliseconds, and there is none when more
than one in a hundred is lost; the spread is over several runs, which take turns.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks import ours, peers
from benchmarks.checks import Check, Goal
from benchmarks.rates import CALLERS, MANY
from benchmarks.report import Figure, Row, number
from benchmarks.rounds import Spread
from benchmarks.setting import CROSS, Setting, placed

GOALS = {5_000: None, 20_000: None, 50_000: Goal(1.0, 1.0), 100_000: Goal(1.0, 1.0)}
MOST_UNANSWERED = 1_024
MOST_LOST = 0.01
HOPELESS = 0.5
WARM_UP = 256
PATIENCE_SECONDS = 2.0


@dataclass(slots=True)
class Run:
    """What became of one run's checks: the waits of those that were answered, in seconds."""

    offered: int
    waits: list[float] = field(default_factory=list)

    @property
    def lost(self) -> float:
        return 1 - len(self.waits) / self.offered

    def percentile_ms(self, share: float) -> float:
        """Of the waits of what was answered."""
        waits = sorted(self.waits)
        return waits[min(len(waits) - 1, int(share * len(waits)))] * 1000 if waits else math.inf


def rows(setting: Setting) -> Iterator[Row]:
    rates = list(GOALS) if setting.long else [50_000]
    repeats, seconds = (5, 1.0) if setting.long else (1, 0.5)
    with setting.server() as server, placed(CROSS, server.pid):
        makers = [_incr, _window, _bucket, *_peers(server.url)]
        for rate in rates:
            if not makers:
                return
            runs: list[list[Run]] = [[] for _ in makers]
            for repeat in range(repeats):
                for make, found in zip(makers, runs, strict=True):
                    found.append(asyncio.run(_run(make(server.url), due(rate, seconds, seed=repeat))))
            checks = [make(server.url) for make in makers]
            figures = [_figure(check, found, GOALS[rate]) for check, found in zip(checks, runs, strict=True)]
            yield Row("arrivals", f"{rate:,} a second offered, 99th percentile", "ms", True, figures)
            # Whoever is lost already is not offered still more.
            makers = [make for make, found in zip(makers, runs, strict=True) if found[0].lost < HOPELESS]


def due(rate: int, seconds: float, seed: int) -> list[float]:
    """When the checks are due, in seconds from the start."""
    chance, now, times = random.Random(seed), 0.0, []
    while (now := now + chance.expovariate(rate)) < seconds:
        times.append(now)
    return times


async def _run(check: Check, times: list[float]) -> Run:
    """One run with clients of its own, warmed up."""
    gc.collect()  # closes the connections of the run before
    ask, failed = check.once()
    for index in range(WARM_UP):
        await ask(index)
    await asyncio.gather(*map(ask, range(WARM_UP)), return_exceptions=True)
    gc.collect()
    gc.freeze()
    try:
        return await offer(ask, failed, times)
    finally:
        gc.unfreeze()


async def offer(ask: Callable[[int], Coroutine[Any, Any, None]], failed: list[int], times: list[float]) -> Run:
    """Asks at the given times, and waits for the answers."""
    run, clock = Run(len(times)), time.perf_counter
    unanswered = 0
    tasks: list[asyncio.Task[None] | None] = [None] * len(times)  # the loop itself holds its tasks only weakly

    async def one(index: int) -> None:
        nonlocal unanswered
        try:
            await ask(index)
            if failed[-1:] != [index]:
                run.waits.append(clock() - start - times[index])
        except Exception:
            pass  # lost, as its missing wait tells
        finally:
            unanswered -= 1
            tasks[index] = None

    index, start = 0, clock()
    while index < len(times):
        now = clock() - start
        while index < len(times) and times[index] <= now:
            if unanswered < MOST_UNANSWERED:
                unanswered += 1
                tasks[index] = asyncio.create_task(one(index))
            index += 1
        await asyncio.sleep(0)
    pending = [task for task in tasks if task is not None]
    if pending:
        await asyncio.wait(pending, timeout=PATIENCE_SECONDS)
    return run


def _figure(check: Check, runs: list[Run], goal: Goal | None) -> Figure:
    middle = Spread.of([run.percentile_ms(0.5) for run in runs]).median
    lost = Spread.of([run.lost for run in runs]).median
    held = [run.percentile_ms(0.99) for run in runs if run.lost <= MOST_LOST]
    value = Spread.of(held) if lost <= MOST_LOST else None
    note = f"median {number(middle)} ms, {lost:.2%} lost"
    return Figure(check.name, value, check.ours, goal if check.ours else None, note)


def _incr(url: str) -> Check:
    from redis.asyncio import Redis

    return Check(
        "redis.asyncio INCR", f"await client.incr({MANY})", {"client": Redis.from_url(url), "callers": CALLERS}
    )


def _window(url: str) -> Check:
    return ours.achecks(url, MANY)[0]


def _bucket(url: str) -> Check:
    return ours.achecks(url, MANY)[1]


def _peers(url: str) -> list[Callable[[str], Check]]:
    """A maker for each of the peers' checks: every run has clients of its own."""

    def maker(index: int) -> Callable[[str], Check]:
        return lambda url: peers.aredis(url, MANY)[index]

    return [maker(index) for index in range(len(peers.aredis(url, MANY)))]
