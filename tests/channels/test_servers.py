"""Real servers on loopback ports, and a real client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.channels.serving import COMMANDS, Served, connect
from tests.servers import wait_until

APP = "tests.channels.served:application"


@pytest.fixture(params=sorted(COMMANDS))
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    one = Served(request.param, APP, tmp_path / "log")
    try:
        wait_until(one.is_listening, f"{request.param} listens")
        yield one
    finally:
        one.end()


async def ask(one: ClientConnection, times: int = 1) -> list[dict[str, Any]]:
    replies = []
    for _ in range(times):
        await one.send("{}")
        replies.append(json.loads(await one.recv()))
    return replies


ANSWER = {"type": "ANSWER"}
DENIAL = {"type": "RATE_LIMITED", "error": "Rate limit exceeded. Max 20 requests per minute.", "retry_after": 60}


@pytest.mark.parametrize("path", ["/json/", "/sync/"])
async def test_of_21_messages_20_are_answered_and_the_connection_stays_open(path: str, served: Served) -> None:
    async with connect(served.url(path)) as one:
        assert await ask(one, 22) == [ANSWER] * 20 + [DENIAL] * 2
        await (await one.ping())
    assert one.close_code == 1000


async def test_one_users_connections_share_and_two_users_do_not(served: Served) -> None:
    async with connect(served.url("/json/?user=7")) as one, connect(served.url("/json/?user=7")) as same:
        replies = await ask(one, 25) + await ask(same, 16)
        assert [reply["type"] for reply in replies] == ["ANSWER"] * 40 + ["RATE_LIMITED"]
        async with connect(served.url("/json/?user=8")) as other, connect(served.url("/json/")) as nobody:
            assert await ask(other, 40) == [ANSWER] * 40
            assert await ask(nobody, 20) == [ANSWER] * 20


async def test_a_silent_denial_sends_no_frame(served: Served) -> None:
    async with connect(served.url("/silent/")) as one:
        assert await ask(one, 20) == [ANSWER] * 20
        await one.send("{}")
        await (await one.ping())
    with pytest.raises(ConnectionClosed):
        await one.recv()


async def test_a_handshake_that_is_closed_before_it_is_accepted_is_a_403(served: Served) -> None:
    for _ in range(10):
        async with connect(served.url("/guarded/")):
            pass
    with pytest.raises(InvalidStatus) as refused:
        async with connect(served.url("/guarded/")):
            pass
    assert refused.value.response.status_code == 403


async def test_the_client_sees_4029_when_an_open_connection_is_closed(served: Served) -> None:
    async with connect(served.url("/guarded/")) as one:
        assert await ask(one, 21) == [ANSWER] * 20 + [DENIAL]
        with pytest.raises(ConnectionClosed):
            await one.recv()
    assert one.close_code == 4029


async def test_the_middleware_answers_429_where_the_server_can(served: Served) -> None:
    for _ in range(2):
        async with connect(served.url("/handshake/")) as one:
            assert await ask(one) == [ANSWER]
    with pytest.raises(InvalidStatus) as refused:
        async with connect(served.url("/handshake/")):
            pass
    response = refused.value.response
    if served.kind != "daphne":
        assert (response.status_code, response.headers["Retry-After"]) == (429, "60")
        assert json.loads(response.body)["error"]["code"] == "RATE_LIMITED"
    else:
        assert response.status_code == 403


async def test_a_client_that_floods_and_leaves_is_no_error(served: Served) -> None:
    one = await connect(served.url("/leaving/"))
    # Hypercorn's queue for the application holds ten: when it is full, it cannot tell the application of the end.
    for _ in range(5 if served.kind == "hypercorn" else 500):
        await one.send("{}")
    one.transport.abort()
    told = partial(wait_until, lambda: "disconnected" in served.log.read_text(), "the consumer is told")
    await asyncio.to_thread(told)
    assert "Traceback" not in served.log.read_text()


async def refused(served: Served, path: str) -> None:
    with pytest.raises(InvalidStatus) as error:
        async with connect(served.url(path)):
            pass
    response = error.value.response
    if served.kind == "daphne":
        assert response.status_code == 403
    else:
        assert (response.status_code, response.headers.get("Retry-After")) == (429, None)
        assert response.headers["Cache-Control"] == "no-store"
        assert json.loads(response.body)["error"]["message"] == (
            "Limit exceeded: Max 2 connections at once. Please try again later."
        )


async def test_after_ten_refusals_two_are_open_and_dropping_one_admits_one(served: Served) -> None:
    async with AsyncExitStack() as open_:
        first = await open_.enter_async_context(connect(served.url("/capped/")))
        second = await open_.enter_async_context(connect(served.url("/capped/")))
        for _ in range(10):
            await refused(served, "/capped/")
        await served.until(connections=2, held=2, connects=2)
        assert await ask(first) + await ask(second) == [ANSWER, ANSWER]
        await second.close()
        await served.until(connections=1)
        third = await open_.enter_async_context(connect(served.url("/capped/")))
        assert await ask(third) == [ANSWER]
        await refused(served, "/capped/")
        third.transport.abort()  # without a word
        await served.until(connections=1, held=1)
        other = await open_.enter_async_context(connect(served.url("/capped/?user=7")))
        assert await ask(other) == [ANSWER]
        await served.until(connections=1, held=2, connects=4)
    await served.until(connections=0, held=0)


async def test_a_consumer_that_fails_gives_its_place_back(served: Served) -> None:
    for _ in range(3):
        async with connect(served.url("/failing/")) as one:
            await one.send("{}")
            with pytest.raises(ConnectionClosed):
                await one.recv()
        await served.until(failing=0)


async def test_messages_over_the_limit_do_not_reach_the_consumer(served: Served) -> None:
    denial = {**DENIAL, "error": "Rate limit exceeded. Max 2 requests per minute."}
    async with connect(served.url("/messages/")) as one:
        for said in ['"ping"', "{}", '"ping"', "{}", '"ping"', "{}", "{}", '"ping"', "{}"]:
            await one.send(said)
        assert [json.loads(await one.recv()) for _ in range(9)] == [ANSWER] * 5 + [denial] * 2 + [ANSWER] + [denial]
        with pytest.raises(ConnectionClosed):
            await one.recv()
    assert one.close_code == 4029


async def test_methods_with_a_limit(served: Served) -> None:
    denial = {**DENIAL, "error": "Rate limit exceeded. Max 2 requests per minute."}
    async with connect(served.url("/decorated/")) as one:
        assert await ask(one, 3) == [ANSWER, ANSWER, denial]
    async with connect(served.url("/decorated/")):
        pass
    with pytest.raises(InvalidStatus) as error:
        async with connect(served.url("/decorated/")):
            pass
    assert error.value.response.status_code == 403
