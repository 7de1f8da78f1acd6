"""Places: memory that does not grow, and on a real server what goes over the wire, what is kept how long, and what processes
that race or crash leave behind. What every store must do is in `PlacesConformance`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from ratelimit import ConfigurationError, Identity, Limiter, StoreError
from ratelimit.connections import ConnectionCap
from ratelimit.stores.memory_places import MemoryPlaces
from ratelimit.stores.places import Claim, Claimed, Room
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import START, FakeClock
from tests.interpreter import printed
from tests.servers import Server
from tests.wire import CountingProxy

pytestmark = pytest.mark.usefixtures("renewed_by_hand")
PATIENT = 10.0
ROOT = Path(__file__).parents[2]
ALICE = Identity(user="1")
KEY = "rl:connections~60p:{user:1}"
TWO = Room(KEY, 2, 60_000_000)
LEASE_MS = 120_000
"""How long a set is kept: a lease, and as much again for nodes whose clocks differ."""


class TestInMemory:
    async def test_what_was_never_given_back_goes_a_few_rooms_at_a_time(self) -> None:
        places = MemoryPlaces()
        for n in range(100):
            await places.ahold([Claim(Room(f"k{n}", 1, 60_000_000), "m")], 0)
        assert len(places) == 100
        for n in range(60):
            await places.ahold([Claim(Room("k", 100, 60_000_000), f"m{n}")], 60_000_000)
        assert len(places) == 1

    async def test_rooms_in_which_somebody_stays_are_kept(self) -> None:
        places = MemoryPlaces()
        rooms = [Room(f"k{n}", 1, 60_000_000) for n in range(10)]
        for second in range(0, 600, 20):
            assert (
                await places.ahold([Claim(room, "m") for room in rooms], second * 1_000_000) == [Claimed(True, 1)] * 10
            )

    async def test_giving_back_what_nobody_has_is_no_error(self) -> None:
        places = MemoryPlaces()
        await places.arelease(Claim(TWO, "a"))
        await places.ahold([Claim(TWO, "a"), Claim(TWO, "b")], 0)
        await places.arelease(Claim(TWO, "c"))
        await places.arelease(Claim(TWO, "a"))
        await places.arelease(Claim(TWO, "b"))
        assert len(places) == 0


@asynccontextmanager
async def capped(
    url: str, most: int = 2, clock: FakeClock | None = None, **options: Any
) -> AsyncIterator[ConnectionCap]:
    """A cap on a real server, by the server's time or by a clock that stands still."""
    store = RedisStore(url, timeout=PATIENT, server_time=clock is None)
    limiter = Limiter(store) if clock is None else Limiter(store, clock=clock)
    try:
        yield ConnectionCap(most, limiter=limiter, **options)
    finally:
        await limiter.aclose()


class TestOnTheWire:
    async def test_taking_renewing_and_leaving_are_a_command_each(self, proxy: CountingProxy) -> None:
        async with capped(proxy.url) as cap:
            async with cap.hold(Identity(user="another")):
                pass
            proxy.reset()
            async with cap.hold(ALICE):
                assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 1}, 1)
                proxy.reset()
                for _ in range(10):
                    await cap._loops[asyncio.get_running_loop()].turn()
                assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 1}, 1)
                proxy.reset()
                assert await cap.ataken(ALICE) == 1
                assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 1}, 1)
                async with cap.hold(ALICE):
                    async with cap.hold(ALICE) as refused:
                        assert not refused
                    proxy.reset()
                assert (proxy.counts, proxy.round_trips) == ({"ZREM": 1}, 1)

    async def test_a_gauge_in_a_thread_is_a_command(self, proxy: CountingProxy) -> None:
        async with capped(proxy.url) as cap, cap.hold(ALICE):
            assert await asyncio.to_thread(cap.taken, ALICE) == 1
            proxy.reset()
            assert await asyncio.to_thread(cap.taken, ALICE) == 1
            assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 1}, 1)

    async def test_10_000_connections_are_renewed_by_100_commands_a_round(
        self, proxy: CountingProxy, record_property: Any
    ) -> None:
        async with capped(proxy.url) as cap, AsyncExitStack() as open_:
            holds = [cap.hold(f"user:{n}") for n in range(10_000)]
            for first in range(0, 10_000, 500):
                decisions = await asyncio.gather(
                    *(open_.enter_async_context(hold) for hold in holds[first : first + 500])
                )
                assert all(decisions)
            assert cap.held == 10_000
            proxy.reset()
            for _ in range(10):
                await cap._loops[asyncio.get_running_loop()].turn()
            # A round is a third of a lease: 20 s of 60.
            record_property("commands_per_second", len(proxy.commands) / 20)
            assert proxy.counts == {"EVALSHA": 100}
            assert {int(command[2]) for command in proxy.commands} == {100}

    @pytest.mark.parametrize("clock", [None, FakeClock()], ids=["server's clock", "node's clock"])
    async def test_every_write_gives_the_set_a_lifetime(
        self, clock: FakeClock | None, redis_url: str, redis_server: Server
    ) -> None:
        with redis.Redis.from_url(redis_url, decode_responses=True) as client:
            async with capped(redis_url, clock=clock) as cap:
                async with cap.hold(ALICE):
                    assert client.keys("*") == [KEY]
                    assert LEASE_MS - 5_000 <= client.pttl(KEY) <= LEASE_MS
                    assert client.zcard(KEY) == 1
                    client.persist(KEY)
                    for _ in range(10):
                        await cap._loops[asyncio.get_running_loop()].turn()
                    assert LEASE_MS - 5_000 <= client.pttl(KEY) <= LEASE_MS
                assert client.keys("*") == []

    async def test_the_time_is_the_servers_however_wrong_the_nodes_clock_is(self, redis_url: str) -> None:
        store = RedisStore(redis_url, timeout=PATIENT)
        right, wrong = (ConnectionCap(1, limiter=Limiter(store, clock=FakeClock(start))) for start in (START, 0))
        async with right.hold(ALICE), wrong.hold(ALICE) as refused:
            assert (refused.allowed, wrong.taken(ALICE)) == (False, 1)
        await store.aclose()

    async def test_what_is_over_is_removed_when_a_place_is_taken(self, redis_url: str, fake_clock: FakeClock) -> None:
        with redis.Redis.from_url(redis_url) as client:
            async with capped(redis_url, clock=fake_clock) as cap:
                holds = [cap.hold(ALICE) for _ in range(2)]
                for hold in holds:
                    await hold.__aenter__()
                fake_clock.advance(60)
                assert (client.zcard(KEY), cap.taken(ALICE)) == (2, 0)
                async with cap.hold(ALICE):
                    assert client.zcard(KEY) == 1
                for hold in holds:
                    await hold.__aexit__(None, None, None)

    async def test_a_refusal_writes_nothing(self, redis_url: str, fake_clock: FakeClock) -> None:
        with redis.Redis.from_url(redis_url) as client:
            async with capped(redis_url, clock=fake_clock) as cap, cap.hold(ALICE), cap.hold(ALICE):
                before = client.dump(KEY)
                fake_clock.advance(1)
                async with cap.hold(ALICE) as refused:
                    assert not refused
                assert client.dump(KEY) == before

    async def test_a_script_that_the_server_forgot_is_loaded_again(self, redis_url: str) -> None:
        with redis.Redis.from_url(redis_url) as client:
            async with capped(redis_url, most=1) as cap:
                for _ in range(2):
                    client.script_flush()
                    async with cap.hold(ALICE) as first, cap.hold(ALICE) as second:
                        assert (first.allowed, second.allowed, first.degraded) == (True, False, False)

    async def test_a_key_of_another_kind_is_an_outage(self, redis_url: str) -> None:
        with redis.Redis.from_url(redis_url) as client:
            client.set(KEY, "5")
            async with capped(redis_url, on_outage="closed") as cap:
                async with cap.hold(ALICE) as decision:
                    assert (decision.allowed, decision.degraded) == (False, True)
                with pytest.raises(StoreError, match="WRONGTYPE"):
                    await cap.ataken(ALICE)

    async def test_a_client_that_is_handed_in(self, redis_url: str) -> None:
        own = redis.asyncio.Redis.from_url(redis_url)
        limiter = Limiter(RedisStore(async_client=own, timeout=PATIENT))
        cap = ConnectionCap(1, limiter=limiter)
        async with cap.hold(ALICE) as first, cap.hold(ALICE) as second:
            assert (first.allowed, second.allowed, await cap.ataken(ALICE)) == (True, False, 1)
            with pytest.raises(ConfigurationError, match="hand in client="):
                cap.taken(ALICE)
        assert await cap.ataken(ALICE) == 0
        await own.aclose()

    async def test_a_server_that_stops_and_comes_back(self, own_server: Server) -> None:
        async with capped(own_server.url, on_outage="open") as cap, AsyncExitStack() as open_:
            assert not (await open_.enter_async_context(cap.hold(ALICE))).degraded
            own_server.stop()
            meanwhile = await open_.enter_async_context(cap.hold(ALICE))
            assert (meanwhile.allowed, meanwhile.degraded) == (True, True)
            await cap._loops[asyncio.get_running_loop()].turn()
            own_server.start()
            for _ in range(10):
                await cap._loops[asyncio.get_running_loop()].turn()
            assert await cap.ataken(ALICE) == 2
            assert not await open_.enter_async_context(cap.hold(ALICE))


async def test_on_a_cluster_every_caller_has_a_command_of_its_own(cluster_url: str) -> None:
    async with capped(cluster_url) as cap, AsyncExitStack() as open_:
        for n in range(300):
            assert await open_.enter_async_context(cap.hold(f"user:{n}"))
            assert await open_.enter_async_context(cap.hold(f"user:{n}"))
        for _ in range(10):
            await cap._loops[asyncio.get_running_loop()].turn()
        assert [await cap.ataken(f"user:{n}") for n in range(300)] == [2] * 300
        async with cap.hold("user:7") as refused:
            assert (refused.allowed, refused.degraded) == (False, False)


RACER = """
import asyncio, json, sys
import redis
from ratelimit import Limiter
from ratelimit.connections import ConnectionCap
from ratelimit.stores.redis import RedisStore

async def main(url):
    cap = ConnectionCap(10, limiter=Limiter(RedisStore(url, timeout=30)))
    open_, seen = redis.Redis.from_url(url), []

    async def one():
        for _ in range(20):
            async with cap.hold("user:1") as decision:
                assert not decision.degraded
                if decision:
                    seen.append(open_.incr("open"))
                    await asyncio.sleep(0)
                    open_.decr("open")

    print("ready", flush=True)
    sys.stdin.readline()
    await asyncio.gather(*(one() for _ in range(64)))
    await cap.limiter.aclose()
    open_.close()
    print(json.dumps(seen), flush=True)

asyncio.run(main(sys.argv[1]))
"""
HOLDER = """
import asyncio, os, sys
from ratelimit import Limiter
from ratelimit.connections import ConnectionCap
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import FakeClock

async def main(url):
    cap = ConnectionCap(2, limiter=Limiter(RedisStore(url, timeout=10, server_time=False), clock=FakeClock()))
    for _ in range(2):
        assert await cap.hold("user:1").__aenter__()
    print(os.getpid(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


async def python(program: str, url: str) -> Process:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return await create_subprocess_exec(sys.executable, "-c", program, url, stdin=PIPE, stdout=PIPE, env=environment)


async def said(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def test_64_tasks_in_each_of_4_processes_race_for_10_places(redis_url: str) -> None:
    racers = [await python(RACER, redis_url) for _ in range(4)]
    assert [await said(racer) for racer in racers] == ["ready"] * 4
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(b"go\n")
    seen = [n for racer in racers for n in json.loads((await racer.communicate())[0])]
    assert [racer.returncode for racer in racers] == [0] * 4
    assert len(seen) >= 40  # every process was let in, and none past the tenth place
    assert max(seen) <= 10
    async with capped(redis_url, most=10) as cap:
        assert await cap.ataken("user:1") == 0


async def test_what_a_killed_process_held_is_free_after_a_lease(redis_url: str, fake_clock: FakeClock) -> None:
    crashing = await python(HOLDER, redis_url)
    assert int(await said(crashing)) == crashing.pid
    async with capped(redis_url, clock=fake_clock) as cap:
        os.kill(crashing.pid, signal.SIGKILL)
        assert await crashing.wait() == -signal.SIGKILL
        fake_clock.advance(59.999999)
        async with cap.hold("user:1") as before:
            assert (before.allowed, cap.taken("user:1")) == (False, 2)
        fake_clock.advance(0.000001)
        async with cap.hold("user:1") as first, cap.hold("user:1") as second, cap.hold("user:1") as third:
            assert (first.allowed, second.allowed, third.allowed) == (True, True, False)


def test_importing_the_cap_imports_no_client() -> None:
    modules = "ratelimit.connections, ratelimit.messages, ratelimit.websockets"
    assert printed(f"import sys, {modules}; print('redis' in sys.modules)") == "False"
