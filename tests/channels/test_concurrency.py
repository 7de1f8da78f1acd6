"""Exactly the limit passes, however many ask at once."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from ratelimit import Limiter
from ratelimit_channels import check_ws_rate_limit, check_ws_rate_limit_sync
from tests.channels.consumers import Json, Sync
from tests.channels.sockets import ask_all, opened, scope_of, user


async def test_200_coroutines(limiter: Limiter) -> None:
    sent: list[dict[str, Any]] = []

    async def keep(message: dict[str, Any]) -> None:
        sent.append(json.loads(message["text"]))

    async def check() -> bool:
        consumer = Json()
        consumer.scope, consumer.base_send = scope_of(user=user(7)), keep
        return await check_ws_rate_limit(consumer, "AI_QUERY")

    limited = await asyncio.gather(*(check() for _ in range(200)))
    assert (limited.count(False), limited.count(True)) == (40, 160)
    assert [frame["type"] for frame in sent] == ["RATE_LIMITED"] * 160


async def test_50_connections_of_one_user(limiter: Limiter) -> None:
    async def four_messages() -> list[str]:
        async with opened(Json.as_asgi(), user=user(7)) as one:
            return await ask_all(one, 4)

    answers = [answer for four in await asyncio.gather(*(four_messages() for _ in range(50))) for answer in four]
    assert (answers.count("ANSWER"), answers.count("RATE_LIMITED")) == (40, 160)


def test_8_threads(limiter: Limiter) -> None:
    together = threading.Barrier(8)
    sent: list[Any] = []
    limited: list[bool] = []

    def ask_25_times() -> None:
        consumer = Sync()
        consumer.scope, consumer.base_send = scope_of(user=user(7)), sent.append
        together.wait()
        for _ in range(25):
            limited.append(check_ws_rate_limit_sync(consumer, "AI_QUERY"))

    threads = [threading.Thread(target=ask_25_times) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (limited.count(False), limited.count(True), len(sent)) == (40, 160, 160)
