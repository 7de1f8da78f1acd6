"""Requests to one Uvicorn worker (uvloop, httptools) over 64 connections: how many are answered, over the same application
without a limiter. The worker has one core, the client (and Redis) the other.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec

from benchmarks.checks import Contestant, Goal
from benchmarks.load import HOST, Load, load
from benchmarks.report import Row, speed
from benchmarks.rounds import measure
from benchmarks.setting import SAME, Setting, pin, placed, processors
from tests.servers import free_port, wait_until

CONNECTIONS = 64
MEMORY, HEADERS, REDIS = Goal(0.92, 0.95), Goal(0.85, 0.90), Goal(0.80, 0.88)

Entry = tuple[str, str, Goal | None]
BARE: list[Entry] = [
    ("three header lines, no limiter", "/three-lines", None),
    ("a check alone, memory", "/memory-check", None),
    ("ratelimit, memory", "/memory", MEMORY),
    ("ratelimit, memory, with headers", "/memory-headers", HEADERS),
    ("limits, memory", "/memory-limits", None),
    ("a check alone, Redis", "/redis-check", None),
    ("ratelimit, Redis", "/redis", REDIS),
    ("ratelimit, Redis, with headers", "/redis-headers", None),
    ("redis.asyncio INCR", "/redis-incr", None),
    ("limits, Redis", "/redis-limits", None),
]
STARLETTE: list[Entry] = [
    ("ratelimit, memory", "/starlette-memory", None),
    ("ratelimit, memory, with headers", "/starlette-memory-headers", None),
    ("ratelimit, memory, decorator", "/starlette-decorator", None),
    ("slowapi, memory, decorator", "/slowapi-memory-decorator", None),
    ("slowapi, memory, decorator with headers", "/slowapi-memory-decorator-headers", None),
    ("slowapi, memory, ASGI middleware", "/slowapi-memory-asgi", None),
    ("slowapi, memory, default middleware", "/slowapi-memory-default", None),
    ("ratelimit, Redis", "/starlette-redis", None),
    ("slowapi, Redis, decorator", "/slowapi-redis-decorator", None),
]


def rows(setting: Setting) -> Iterator[Row]:
    if not all(map(find_spec, ("uvicorn", "uvloop", "httptools"))):
        return
    with (
        setting.server() as server,
        placed(SAME, server.pid),
        worker(server.url) as port,
        load(port, CONNECTIONS) as one,
    ):
        for title, path, entries in (("bare ASGI", "/bare", BARE), ("Starlette", "/starlette", STARLETTE)):
            if path == "/starlette" and not find_spec("slowapi"):
                continue
            baseline = _contestant(one, (f"{title}, no limiter", path, None))
            contestants = [
                _contestant(one, entry) for entry in entries if "limits," not in entry[0] or find_spec("limits")
            ]
            yield speed("ASGI", f"{title}, requests a second", measure(baseline, contestants, setting.plan(12, 0.2)))


def _contestant(one: Load, entry: Entry) -> Contestant:
    name, path, goal = entry
    return Contestant(name, partial(one.ask, path), name.startswith("ratelimit"), goal)


@contextmanager
def worker(redis_url: str) -> Iterator[int]:
    """The port of a Uvicorn worker that serves `asgi_apps`, on a processor of its own where there is one."""
    port = free_port()
    words = ["uvicorn", "benchmarks.asgi_apps:app", f"--port={port}", "--loop=uvloop", "--http=httptools"]
    quiet = ["--no-access-log", "--log-level=error", "--lifespan=off", "--no-server-header", "--no-date-header"]
    environment = {**os.environ, "BENCHMARK_REDIS": redis_url}
    process = subprocess.Popen([sys.executable, "-m", *words, *quiet], env=environment)
    try:
        wait_until(lambda: _listens(port), "the worker listens")
        if processors():
            pin(process.pid, processors()[-1])
        yield port
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False
