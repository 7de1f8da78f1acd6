"""Exact counts when many calls come in one instant: in one loop, and in eight threads with a loop each."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("httpx")

import httpx
from django.core.cache import cache

from ratelimit import Limiter
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import FakeClock
from ratelimit_django.store import DjangoCacheStore
from ratelimit_mcp import MCPRateLimit, mcp_ratelimit
from tests.mcp.asgi import ToolRunner, statuses, tool_call

Found = Counter[tuple[str, int]]


@pytest.fixture
def shared(redis_url: str, fake_clock: FakeClock) -> Limiter:
    """A limiter on a real server. On a busy machine 200 calls at once may take longer than a check usually may."""
    return Limiter(RedisStore(redis_url, timeout=10), clock=fake_clock)


@pytest.fixture
def on_django(fake_clock: FakeClock) -> Iterator[Limiter]:
    """A limiter on Django's cache."""
    cache.clear()
    yield Limiter(DjangoCacheStore(), clock=fake_clock)
    cache.clear()


async def flood(app: Any, tools: list[str]) -> Found:
    """One call of each tool at the same time, through httpx: how often each tool met which status."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        calls = [client.post("/mcp", json=tool_call(name, number)) for number, name in enumerate(tools)]
        answers = await asyncio.gather(*calls)
    return Counter((name, answer.status_code) for name, answer in zip(tools, answers, strict=True))


async def exact_for_200_coroutines(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(listens=False), tools={"search": "40/m"}, limiter=limiter)
    assert await flood(wrapped, ["search"] * 200) == {("search", 200): 40, ("search", 429): 160}
    assert len(app.ran) == 40
    assert await flood(wrapped, ["other"] * 61) == {("other", 200): 60, ("other", 429): 1}
    await limiter.aclose()


def exact_for_8_threads(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(), tools={"search": "40/m"}, limiter=limiter)
    together = threading.Barrier(8)

    async def ask_25_times() -> list[int]:
        together.wait()
        found = await statuses(wrapped, 25)
        await limiter.aclose()
        return found

    with ThreadPoolExecutor(8) as threads:
        runs = [threads.submit(asyncio.run, ask_25_times()) for _ in range(8)]
        found = Counter(status for run in runs for status in run.result())
    assert found == {200: 40, 429: 160}
    assert len(app.ran) == 40


async def test_200_coroutines_in_memory(limiter: Limiter) -> None:
    await exact_for_200_coroutines(limiter)


async def test_200_coroutines_on_a_shared_server(shared: Limiter) -> None:
    await exact_for_200_coroutines(shared)


async def test_200_coroutines_on_djangos_cache(on_django: Limiter) -> None:
    await exact_for_200_coroutines(on_django)


def test_8_threads_in_memory(limiter: Limiter) -> None:
    exact_for_8_threads(limiter)


def test_8_threads_on_a_shared_server(shared: Limiter) -> None:
    exact_for_8_threads(shared)


def test_8_threads_on_djangos_cache(on_django: Limiter) -> None:
    exact_for_8_threads(on_django)


async def test_two_tools_and_the_cap_at_once(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(app := ToolRunner(listens=False), tools={"search": "40/m"}, global_limit="70/m")
    found = await flood(wrapped, ["search", "other"] * 100)
    assert found[("search", 200)] <= 40
    assert found[("search", 200)] + found[("other", 200)] == 70 == len(app.ran)
    assert await flood(wrapped, ["other"]) == {("other", 429): 1}


def test_a_sync_tool_in_8_threads(limiter: Limiter) -> None:
    pytest.importorskip("mcp")
    from ratelimit_mcp import MCPRateLimitExceeded

    ran: list[int] = []
    limited = mcp_ratelimit("40/m", tool="search")(ran.append)
    together = threading.Barrier(8)

    def ask_25_times() -> int:
        together.wait()
        denied = 0
        for number in range(25):
            try:
                limited(number)
            except MCPRateLimitExceeded:
                denied += 1
        return denied

    with ThreadPoolExecutor(8) as threads:
        denied = sum(run.result() for run in [threads.submit(ask_25_times) for _ in range(8)])
    assert (len(ran), denied) == (40, 160)
