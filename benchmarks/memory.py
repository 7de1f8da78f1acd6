"""In this process's memory: one check after the other for one caller, sync and in an event loop.

The time is the process's own (CPU) time: nothing here waits, and what the machine's other work takes is not counted.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

from benchmarks import ours, peers
from benchmarks.checks import Check, Goal
from benchmarks.rates import CALLERS, MANY, ONE
from benchmarks.report import Row, cost
from benchmarks.rounds import ameasure, measure
from benchmarks.setting import Setting
from ratelimit import MemoryStore

GOAL = Goal(4.0, 2.0)
ASYNC_GOAL = Goal(3.5, 2.0)


def rows(setting: Setting) -> Iterator[Row]:
    plan = setting.plan(40, 0.01)
    for title, caller in (("hot key", ONE), ("1024 keys in turn", MANY)):
        checks = [*ours.checks(MemoryStore(), caller, GOAL if caller == ONE else None), *peers.memory(caller)]
        timed = measure(counted(caller).alone(), [check.alone() for check in checks], plan, time.process_time)
        yield cost("memory", title, timed)
    yield asyncio.run(_async_row(setting))


async def _async_row(setting: Setting) -> Row:
    checks = [*ours.achecks(MemoryStore(), ONE, ASYNC_GOAL), *peers.amemory(ONE)]
    contestants = [check.alone() for check in checks]
    timed = await ameasure(acounted(ONE).alone(), contestants, setting.plan(40, 0.01), time.process_time)
    return cost("memory", "async, hot key", timed)


def counted(caller: str) -> Check:
    """The baseline: a function that counts under a lock."""
    lock = threading.Lock()
    counts = dict.fromkeys(["user:42", *CALLERS], 0)

    def count(key: str) -> None:
        with lock:
            counts[key] += 1

    return Check("with lock: counts[key] += 1", f"count({caller})", {"count": count, "callers": CALLERS})


def acounted(caller: str) -> Check:
    """The baseline in an event loop: the same in a coroutine function."""
    lock = threading.Lock()
    counts = dict.fromkeys(["user:42", *CALLERS], 0)

    async def count(key: str) -> None:
        with lock:
            counts[key] += 1

    return Check("async, with lock: counts[key] += 1", f"await count({caller})", {"count": count, "callers": CALLERS})
