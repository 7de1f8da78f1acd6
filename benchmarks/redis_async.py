"""On a Redis or Valkey over loopback, in an event loop: 1 to 512 tasks, each of which asks again as soon as it was answered,
for 1024 callers in turn, beside as many tasks that ask redis.asyncio for INCR. Client and server have a core each.

A closed loop flatters whoever batches, because one reply wakes everybody at once: see `arrivals.py` for the other case.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks import ours, peers
from benchmarks.checks import Check, Goal
from benchmarks.rates import CALLERS, MANY
from benchmarks.report import Row, speed
from benchmarks.rounds import ameasure
from benchmarks.setting import CROSS, Setting, placed

GOALS = {1: Goal(1.1, 1.25), 16: Goal(3, 4.5), 128: Goal(6, 8), 512: Goal(10, 17)}
QUICK = (1, 128)


def rows(setting: Setting) -> Iterator[Row]:
    with setting.server() as server, placed(CROSS, server.pid):
        yield from asyncio.run(closed_loops(setting, server.url, "redis asyncio", GOALS))


async def closed_loops(setting: Setting, url: str, area: str, goals: dict[int, Goal]) -> list[Row]:
    """A row for each number of tasks. One client of each kind for all of them, as in an application."""
    found = []
    async with incr(url) as baseline:
        checks = [*ours.achecks(url, MANY)[:2], *peers.aredis(url, MANY)]
        for tasks, goal in goals.items():
            if not setting.long and tasks not in QUICK:
                continue
            contestants = [check.towards(goal).by_tasks(tasks) for check in checks]
            timed = await ameasure(baseline.by_tasks(tasks), contestants, setting.plan(12, 0.25))
            found.append(speed(area, f"{tasks} task{'s' if tasks > 1 else ''}", timed))
    return found


@asynccontextmanager
async def incr(url: str) -> AsyncIterator[Check]:
    """The baseline: redis.asyncio's default client, for a single server or a cluster."""
    from redis.asyncio import Redis, RedisCluster

    client: Any = RedisCluster if url.startswith("redis+cluster") else Redis
    async with client.from_url(url.replace("redis+cluster", "redis")) as connected:
        names = {"client": connected, "callers": CALLERS}
        yield Check("redis.asyncio INCR", f"await client.incr({MANY})", names)
