"""The connection that an event loop's checks share: order, cancellation, errors, silence, and reading replies."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from ratelimit import Limiter, Rate
from ratelimit.stores import redis_pipe
from ratelimit.stores.redis import RedisStore
from ratelimit.stores.redis_clients import async_client, target
from ratelimit.stores.redis_opener import PipeOpener
from ratelimit.stores.redis_reader import PythonReader, new_reader
from ratelimit.stores.redis_script import packed
from ratelimit.testing import FakeClock
from tests.wire import CountingProxy

PATIENT = 10.0
REPLY = b"*3\r\n:1\r\n:-7\r\n*2\r\n$5\r\nab\r\nc\r\n$-1\r\n+OK\r\n-NOSCRIPT none\r\n"


def opener(url: str, timeout: float = PATIENT) -> PipeOpener:
    return PipeOpener(async_client(target(url), timeout).connection_pool, timeout)


class TestPipe:
    async def test_replies_come_in_the_order_of_their_commands(self, redis_url: str) -> None:
        own = opener(redis_url)
        pipe = await own.open()
        replies = await asyncio.gather(*(pipe.command(packed("ECHO", n)) for n in range(50)))
        assert replies == [str(n).encode() for n in range(50)]
        await own.aclose()

    async def test_what_comes_while_something_is_on_the_way_is_sent_together(self, proxy: CountingProxy) -> None:
        own = opener(proxy.url)
        pipe = await own.open()
        proxy.reset()
        await asyncio.gather(*(pipe.command(packed("PING")) for _ in range(50)))
        assert (proxy.counts, proxy.round_trips, proxy.connections) == ({"PING": 50}, 2, 0)
        await own.aclose()

    async def test_a_cancelled_waiter_harms_no_other(self, redis_url: str) -> None:
        own = opener(redis_url)
        pipe = await own.open()
        futures = [pipe.command(packed("ECHO", n)) for n in range(5)]
        futures[2].cancel()
        assert await asyncio.gather(*(f for n, f in enumerate(futures) if n != 2)) == [b"0", b"1", b"3", b"4"]
        assert await pipe.command(packed("ECHO", "after")) == b"after"
        await own.aclose()

    async def test_an_error_reaches_its_own_waiter(self, redis_url: str) -> None:
        own = opener(redis_url)
        pipe = await own.open()
        first, wrong, last = (pipe.command(packed(word)) for word in ("PING", "NONSENSE", "PING"))
        assert (await first, await last) == (b"PONG", b"PONG")
        with pytest.raises(ResponseError, match="NONSENSE"):
            await wrong
        await own.aclose()

    async def test_waiters_that_come_together_share_one_connection(self, proxy: CountingProxy) -> None:
        own = opener(proxy.url)
        pipes = await asyncio.gather(*(own.open() for _ in range(20)))
        assert len({id(pipe) for pipe in pipes}) == 1
        assert own.pipe is pipes[0]
        assert proxy.connections == 1
        await own.aclose()
        assert own.pipe is None

    async def test_a_cancelled_waiter_does_not_take_the_new_connection_from_the_others(self, redis_url: str) -> None:
        own = opener(redis_url)
        first, second = asyncio.create_task(own.open()), asyncio.create_task(own.open())
        await asyncio.sleep(0)
        first.cancel()
        assert await (await second).command(packed("PING")) == b"PONG"
        await own.aclose()

    async def test_a_connection_that_breaks_is_told_to_every_waiter_and_replaced(self, proxy: CountingProxy) -> None:
        own = opener(proxy.url)
        pipe = await own.open()
        proxy.lose_replies = 1
        futures = [pipe.command(packed("PING")) for _ in range(3)]
        assert [type(e) for e in await asyncio.gather(*futures, return_exceptions=True)] == [ConnectionError] * 3
        assert own.pipe is None
        with pytest.raises(ConnectionError, match="closed"):
            pipe.command(packed("PING"))
        assert await (await own.open()).command(packed("PING")) == b"PONG"
        await own.aclose()

    async def test_too_many_outstanding_commands_are_refused(
        self, redis_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis_pipe, "MAX_OUTSTANDING", 3)
        own = opener(redis_url)
        pipe = await own.open()
        futures = [pipe.command(packed("PING")) for _ in range(3)]
        with pytest.raises(ConnectionError, match="waiting"):
            pipe.command(packed("PING"))
        assert await asyncio.gather(*futures) == [b"PONG"] * 3
        await own.aclose()

    async def test_a_reply_that_nobody_asked_for_ends_the_connection(self, redis_url: str) -> None:
        own = opener(redis_url)
        pipe = await own.open()
        pipe.data_received(b"+OK\r\n")
        assert pipe.closed
        await own.aclose()

    async def test_bytes_that_are_no_reply_end_the_connection(self, redis_url: str) -> None:
        own = opener(redis_url)
        pipe = await own.open()
        waiting = pipe.command(packed("PING"))
        pipe.data_received(b"nonsense\r\n")
        with pytest.raises(ConnectionError):
            await waiting
        await own.aclose()

    async def test_a_server_that_falls_silent_is_given_up(self, redis_url: str) -> None:
        own = opener(redis_url, timeout=0.05)
        pipe = await own.open()
        assert await pipe.command(packed("PING")) == b"PONG"
        with pytest.raises(TimeoutError, match=r"nothing heard for 0\.05 s"):
            await pipe.command(packed("BLPOP", "nothing", 0))
        assert own.pipe is None
        await own.aclose()

    async def test_a_look_before_the_time_changes_nothing(self, redis_url: str) -> None:
        own = opener(redis_url)
        pipe = await own.open()
        waiting = pipe.command(packed("PING"))
        pipe._look()
        assert await waiting == b"PONG"
        await own.aclose()

    async def test_closing_leaves_a_cancelled_waiter_alone(self, redis_url: str) -> None:
        own = opener(redis_url)
        pipe = await own.open()
        cancelled, waiting = pipe.command(packed("PING")), pipe.command(packed("PING"))
        cancelled.cancel()
        await own.aclose()
        assert cancelled.cancelled()
        with pytest.raises(ConnectionError, match="closed"):
            await waiting

    async def test_a_busy_loop_is_not_taken_for_a_silent_server(self, redis_url: str) -> None:
        own = opener(redis_url)
        pipe = await own.open()
        waiting = pipe.command(packed("PING"))
        with redis.Redis.from_url(redis_url) as other:
            other.ping()  # keeps the loop from reading while the server, which has one thread, answers both
        pipe._heard -= 2 * PATIENT
        pipe._look()
        assert not pipe.closed
        assert await waiting == b"PONG"
        await own.aclose()

    async def test_a_connection_that_a_busy_loop_could_not_attend_to_is_waited_for(
        self, redis_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own, loop, late, waits = opener(redis_url), asyncio.get_running_loop(), [0.0], []
        really, now = asyncio.wait, loop.time

        async def busy(tasks: set[asyncio.Task[None]], timeout: float) -> tuple[set[Any], set[Any]]:  # noqa: ASYNC109
            waits.append(timeout)
            if len(waits) == 3:
                return await really(tasks, timeout=timeout)
            late[0] += 2 * timeout  # the wait has ended much too late, for the loop was busy
            return set(), tasks

        monkeypatch.setattr(loop, "time", lambda: now() + late[0])
        monkeypatch.setattr(asyncio, "wait", busy)
        pipe = await own.open()
        assert (pipe.closed, waits) == (False, [2 * PATIENT] * 3)
        await own.aclose()

    async def test_a_connection_that_is_not_made_in_time_is_an_error(self, silent_url: str) -> None:
        own = opener(silent_url, timeout=0.05)
        with pytest.raises(TimeoutError, match=r"no connection within 0\.1 s"):
            await own.open()
        await own.aclose()

    async def test_a_pipe_that_has_nothing_to_wait_for_stops_looking(self, redis_url: str) -> None:
        own = opener(redis_url, timeout=0.01)
        pipe = await own.open()
        await pipe.command(packed("PING"))
        looked = asyncio.Event()
        pipe.loop.call_later(0.02, looked.set)
        await looked.wait()
        assert pipe._watch is None
        assert await pipe.command(packed("PING")) == b"PONG"
        await own.aclose()

    async def test_closing_ends_an_attempt_to_open(self, silent_url: str) -> None:
        own = opener(silent_url)
        opening = asyncio.create_task(own.open())
        await asyncio.sleep(0)
        await own.aclose()
        with pytest.raises(asyncio.CancelledError):
            await opening


async def test_cancelled_checks_leave_the_others_exact(redis_url: str, fake_clock: FakeClock) -> None:
    limiter, ten = Limiter(RedisStore(redis_url, timeout=PATIENT), clock=fake_clock), Rate.parse("10/m")
    await limiter.acheck(ten, "warm")
    tasks = [asyncio.create_task(limiter.acheck(ten, "u")) for _ in range(40)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    decisions = [one for one in results if not isinstance(one, BaseException)]
    assert len(decisions) == 20
    assert not any(decision.degraded for decision in decisions)
    assert sum(decision.allowed for decision in decisions) == 5  # every other of the ten that passed
    assert (await limiter.apeek(ten, "u")).remaining == 0
    await limiter.aclose()


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@pytest.mark.parametrize("make", [PythonReader, new_reader])
def test_readers_give_the_same_replies_however_they_are_split(make: Any, chunk: int) -> None:
    reader, found = make(), []
    for at in range(0, len(REPLY), chunk):
        reader.feed(REPLY[at : at + chunk])
        while (reply := reader.gets()) is not False:
            found.append(reply)
    *others, error = found
    assert others == [[1, -7, [b"ab\r\nc"[:5], None]], b"OK"]
    assert isinstance(error, ResponseError)
    assert str(error) == "NOSCRIPT none"


def test_the_python_reader_refuses_what_is_no_reply() -> None:
    reader = PythonReader()
    reader.feed(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(ConnectionError, match="HTTP"):
        reader.gets()


def test_without_hiredis_python_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hiredis", None)
    assert isinstance(new_reader(), PythonReader)


def test_a_command_is_an_array_of_texts() -> None:
    assert packed("EVALSHA", "ab", 1) == b"*3\r\n$7\r\nEVALSHA\r\n$2\r\nab\r\n$1\r\n1\r\n"
