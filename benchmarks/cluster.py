"""The same as `redis_async.py` on a cluster of three nodes: the callers are spread over all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from benchmarks.checks import Goal
from benchmarks.redis_async import closed_loops
from benchmarks.report import Row
from benchmarks.setting import CROSS, Setting, placed

GOALS = {1: Goal(1.1, 1.2), 16: Goal(2.5, 3), 128: Goal(3.5, 4), 512: Goal(6, 7.5)}


def rows(setting: Setting) -> Iterator[Row]:
    with setting.cluster() as nodes, placed(CROSS, *(node.pid for node in nodes.nodes)):
        yield from asyncio.run(closed_loops(setting, nodes.url, "cluster asyncio", GOALS))
