"""The areas that are measured, each in a process of its own: none finds what another one left, be it a heap, a pinned
processor or Django's settings."""

from __future__ import annotations

import logging
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context

from benchmarks.report import Row, table
from benchmarks.setting import Setting

AREAS = (
    *("memory", "threads", "keys"),
    *("redis_sync", "denials", "policies", "redis_async", "cluster", "arrivals"),
    *("asgi", "django_view"),
)
"""Names of modules here; `rows` of each gives its rows."""


def measure_area(area: str, setting: Setting) -> list[Row]:
    """The rows of one area. What they raise is raised."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_printed, area, setting).result()


def _printed(area: str, setting: Setting) -> list[Row]:
    """Each row as soon as it is there."""
    logging.getLogger("ratelimit").setLevel(logging.CRITICAL)  # what a line of log costs is not the engine's
    found = []
    for row in import_module(f"benchmarks.{area}").rows(setting):
        found.append(row)
        print(table(row), flush=True)
    return found
