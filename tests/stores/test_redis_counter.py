"""Counters on a real server: what goes over the wire, who hears what, and that they count where the general script counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import cast

import pytest
import redis

from ratelimit import Limiter, MemoryStore, Rate, StoreError
from ratelimit.algorithms.base import BY_NAME
from ratelimit.keys import stored_key
from ratelimit.outcome import LOOK, Charge
from ratelimit.stores import redis_counter, redis_pipe, redis_plain
from ratelimit.stores.base import Taken
from ratelimit.stores.redis import RedisStore
from ratelimit.stores.redis_counter import DIVIDED, Parcel, RedisCounter
from ratelimit.stores.redis_plain import plain
from ratelimit.testing import CALLERS, START
from tests.servers import Server, ask, replica
from tests.wire import CountingProxy

PATIENT = 10.0
NOW = START * 1_000_000
KINDS = ("5/h", "5/h anchored", "5/h sliding", "5/h burst 5", "5/h leaky burst 5")
HEAD = "rl:g"


@pytest.fixture
def store(redis_url: str) -> Iterator[RedisStore]:
    store = RedisStore(redis_url, timeout=PATIENT, server_time=False)
    yield store
    store.close()


async def warm(store: RedisStore, *counters: RedisCounter) -> None:
    """Opens the connection and has the scripts loaded."""
    for counter in counters:
        await counter.atake("warm", 1, NOW)


def used(taken: Taken) -> int:
    """Units in use before the check, of a window or a bucket."""
    _, state, _ = taken
    return state[min(1, len(state) - 1)]


def key_of(kind: str, caller: str = "u") -> str:
    return stored_key(Charge(HEAD, caller, Rate.parse(kind), 1, "g"), NOW)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("caller", CALLERS)
def test_a_counter_counts_where_the_general_script_does(kind: str, caller: str, store: RedisStore) -> None:
    rate, algorithm = Rate.parse(kind), BY_NAME[Rate.parse(kind).algorithm]
    counter, charge = store.counter(HEAD, rate), Charge(HEAD, caller, rate, 2, "g")
    passed = []
    for step in range(4):
        now_us = NOW + step * 1_000_000
        if step % 2:
            (outcome,) = store.apply([charge], now_us)
        else:
            passes, state, at_us = counter.take(caller, 2, now_us)
            outcome = algorithm.outcome(state, rate, 2, at_us, passes)
            assert at_us == now_us
            assert (outcome.allowed, store.apply([charge], now_us, LOOK)[0].remaining) == (passes, outcome.remaining)
        passed.append(outcome.allowed)
    assert passed == [True, True, False, False]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("back_us", [1_000_000, 60_000_000, 60_000_001])
def test_of_a_clock_that_steps_back_it_tells_what_memory_does(kind: str, back_us: int, store: RedisStore) -> None:
    rate, memory = Rate.parse(kind), MemoryStore()
    counter, algorithm = store.counter(HEAD, rate), BY_NAME[rate.algorithm]
    for cost, now_us in ((2, NOW), (1, NOW - back_us), (5, NOW - back_us), (1, NOW)):
        passes, state, at_us = counter.take("u", cost, now_us)
        told = algorithm.outcome(state, rate, cost, at_us, passes)
        assert [told] == memory.apply([Charge(HEAD, "u", rate, cost, "g")], now_us)


class TestOnTheWire:
    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_check_alone_is_one_command_and_one_trip(self, kind: str, proxy: CountingProxy) -> None:
        store = RedisStore(proxy.url, timeout=PATIENT)
        counter = store.counter(HEAD, Rate.parse(kind))
        await warm(store, counter)
        proxy.reset()
        assert [(await counter.atake("u", 1, NOW))[0] for _ in range(3)] == [True] * 3
        assert (proxy.counts, proxy.round_trips, proxy.connections) == ({"EVALSHA": 3}, 3, 0)
        await store.aclose()

    @pytest.mark.parametrize("kind", KINDS)
    async def test_what_comes_while_one_is_on_the_way_is_one_command(self, kind: str, proxy: CountingProxy) -> None:
        store = RedisStore(proxy.url, timeout=PATIENT)
        counter = store.counter(HEAD, Rate.parse(kind))
        await warm(store, counter)
        proxy.reset()
        found = await asyncio.gather(*(counter.atake(f"u{n}", 1, NOW) for n in range(DIVIDED)))
        assert [(passes, used((passes, state, 0))) for passes, state, _ in found] == [(True, 0)] * DIVIDED
        assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 2}, 2)
        await store.aclose()

    async def test_many_are_two_commands_so_that_server_and_client_work_at_once(self, proxy: CountingProxy) -> None:
        store = RedisStore(proxy.url, timeout=PATIENT)
        counter = store.counter(HEAD, Rate.parse("100/h"))
        await warm(store, counter)
        proxy.reset()
        found = await asyncio.gather(*(counter.atake("u", 1, NOW) for _ in range(2 + DIVIDED)))
        assert [used(one) for one in found] == list(range(2 + DIVIDED))
        assert [words[2] for words in proxy.commands] == ["1", str(DIVIDED // 2 + 1), str(DIVIDED // 2)]
        await store.aclose()

    async def test_a_command_has_no_more_checks_than_the_cap(
        self, proxy: CountingProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis_counter, "MOST_CHECKS", 8)
        store = RedisStore(proxy.url, timeout=PATIENT)
        counter = store.counter(HEAD, Rate.parse("100/h"))
        await warm(store, counter)
        proxy.reset()
        found = await asyncio.gather(*(counter.atake("u", 1, NOW) for _ in range(31)))
        assert [used(one) for one in found] == list(range(31))
        assert [words[2] for words in proxy.commands] == ["1", "8", "8", "8", "6"]
        await store.aclose()

    async def test_other_counters_and_commands_go_in_the_same_write(self, proxy: CountingProxy) -> None:
        store = RedisStore(proxy.url, timeout=PATIENT)
        counters = [store.counter(HEAD, Rate.parse(kind)) for kind in KINDS]
        limiter = Limiter(store)
        await warm(store, *counters)
        await limiter.apeek("AI_QUERY", "u")
        proxy.reset()
        asked: list[Awaitable[object]] = [counter.atake("u", 1, NOW) for _ in range(4) for counter in counters]
        await asyncio.gather(*asked, limiter.apeek("AI_QUERY", "u"))
        assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 1 + len(KINDS) + 1}, 2)
        await store.aclose()

    async def test_those_whom_a_reply_wakes_ask_again_in_one_command(self, proxy: CountingProxy) -> None:
        store = RedisStore(proxy.url, timeout=PATIENT)
        counter = store.counter(HEAD, Rate.parse("1000/h"))
        await warm(store, counter)

        async def ask_again(caller: str) -> None:
            for _ in range(4):
                await counter.atake(caller, 1, NOW)

        proxy.reset()
        await asyncio.gather(*(ask_again(f"u{n}") for n in range(DIVIDED - 1)))
        # The first one is alone once, then they are together.
        assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 5}, 5)
        await store.aclose()

    async def test_a_window_that_ends_meanwhile_begins_a_command(self, proxy: CountingProxy) -> None:
        store = RedisStore(proxy.url, timeout=PATIENT)
        counter, hour = store.counter(HEAD, Rate.parse("5/h")), 3_600_000_000
        await warm(store, counter)
        proxy.reset()
        times = [NOW, NOW + 1, NOW + hour - 1, NOW + hour, NOW + hour, NOW - 1]
        found = await asyncio.gather(*(counter.atake("u", 1, at_us) for at_us in times))
        assert found == [(True, (units,), at_us) for units, at_us in zip((0, 1, 2, 0, 1, 0), times, strict=True)]
        assert [words[2] for words in proxy.commands] == ["1", "2", "2", "1"]
        await store.aclose()


class TestParcels:
    @pytest.mark.parametrize("kind", KINDS)
    async def test_checks_of_one_caller_meet_what_the_one_before_left(self, kind: str, store: RedisStore) -> None:
        counter = store.counter(HEAD, Rate.parse(kind))
        await warm(store, counter)
        found = await asyncio.gather(*(counter.atake("u", cost, NOW) for cost in (1, 1, 2, 3, 6, 1, 1)))
        assert [(one[0], used(one)) for one in found] == [
            *((True, 0), (True, 1), (True, 2), (False, 4), (False, 4), (True, 4), (False, 5))
        ]
        await store.aclose()

    @pytest.mark.parametrize("kind", KINDS[1:])
    async def test_every_check_goes_by_its_own_time(self, kind: str, store: RedisStore) -> None:
        counter = store.counter(HEAD, Rate.parse(kind))
        await warm(store, counter)
        times = [NOW, NOW + 5, NOW + 3, NOW + 3 * 3_600_000_000, NOW + 3 * 3_600_000_000]
        found = await asyncio.gather(*(counter.atake("u", 5, at_us) for at_us in times))
        assert [(passes, at_us) for passes, _, at_us in found] == list(
            zip((True, False, False, True, False), times, strict=True)
        )
        await store.aclose()

    @pytest.mark.parametrize("kind", KINDS[1:])
    async def test_the_server_says_what_time_it_is(self, kind: str, redis_url: str, client: redis.Redis) -> None:
        store = RedisStore(redis_url, timeout=PATIENT)
        counter = store.counter(HEAD, Rate.parse(kind))
        before = client.time()
        found = [await counter.atake("u", 1, NOW), counter.take("u", 1, NOW)]
        found += await asyncio.gather(*(counter.atake("u", cost, NOW) for cost in (1, 1, 1, 2)))
        after = client.time()
        times = [at_us for _, _, at_us in found]
        assert before[0] * 1_000_000 + before[1] <= times[0] <= times[1] <= times[2] <= times[3] == times[4] == times[5]
        assert times[5] <= after[0] * 1_000_000 + after[1]
        assert [passes for passes, _, _ in found] == [True] * 5 + [False]
        await store.aclose()

    async def test_a_cancelled_check_harms_no_other(self, store: RedisStore) -> None:
        counter = store.counter(HEAD, Rate.parse("5/h"))
        await warm(store, counter)
        futures = [asyncio.ensure_future(counter.atake("u", 1, NOW)) for _ in range(6)]
        for cancelled in (futures[0], futures[3]):
            cancelled.cancel()
        found = await asyncio.gather(*futures, return_exceptions=True)
        assert [used(one) for one in found if isinstance(one, tuple)] == [1, 2, 4, 5]
        assert used(await counter.atake("u", 1, NOW)) == 5
        await store.aclose()

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("limit", [0, 5])
    async def test_a_refused_check_writes_nothing(
        self, kind: str, limit: int, store: RedisStore, client: redis.Redis
    ) -> None:
        from dataclasses import replace

        counter = store.counter(HEAD, replace(Rate.parse(kind), limit=limit))
        costs = (6, 7) if limit else (1, 2)
        assert [counter.take("u", cost, NOW)[0] for cost in costs] == [False, False]
        found = await asyncio.gather(*(counter.atake("u", cost, NOW) for cost in costs))
        assert [passes for passes, _, _ in found] == [False, False]
        assert client.dbsize() == 0
        await store.aclose()


class TestErrors:
    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_key_of_another_kind_is_an_error_for_its_check_alone(
        self, kind: str, store: RedisStore, client: redis.Redis
    ) -> None:
        counter = store.counter(HEAD, Rate.parse(kind))
        await warm(store, counter)
        client.lpush(key_of(kind, "bad"), "not a counter")
        callers = ("a", "a", "bad", "a", "bad", "bad")
        futures = [asyncio.ensure_future(counter.atake(caller, 1, NOW)) for caller in callers]
        futures[4].cancel()
        found = await asyncio.gather(*futures, return_exceptions=True)
        assert [used(one) for one in found if isinstance(one, tuple)] == [0, 1, 2]
        assert [type(found[place]) for place in (2, 4, 5)] == [StoreError, asyncio.CancelledError, StoreError]
        assert "WRONGTYPE" in str(found[5])
        with pytest.raises(StoreError, match="WRONGTYPE"):
            await counter.atake("bad", 1, NOW)
        with pytest.raises(StoreError, match="WRONGTYPE"):
            counter.take("bad", 1, NOW)
        await store.aclose()

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_server_out_of_memory_is_an_error(self, kind: str, store: RedisStore, client: redis.Redis) -> None:
        counter = store.counter(HEAD, Rate.parse(kind))
        await warm(store, counter)
        client.config_set("maxmemory", "1")
        try:
            found = await asyncio.gather(*(counter.atake("u", 1, NOW) for _ in range(3)), return_exceptions=True)
        finally:
            client.config_set("maxmemory", "0")
        assert [type(one) for one in found] == [StoreError] * 3
        assert used(await counter.atake("u", 1, NOW)) == 0
        await store.aclose()

    async def test_a_read_only_replica_is_an_error(self, own_server: Server) -> None:
        with replica(own_server.program, own_server) as readonly:
            store = RedisStore(readonly.url, timeout=PATIENT, server_time=False)
            counter = store.counter(HEAD, Rate.parse("5/h"))
            found = await asyncio.gather(*(counter.atake("u", 1, NOW) for _ in range(3)), return_exceptions=True)
            assert [type(one) for one in found] == [StoreError] * 3
            await store.aclose()

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_server_that_is_no_longer_the_master_is_left(self, kind: str, own_server: Server) -> None:
        store = RedisStore(own_server.url, timeout=PATIENT, server_time=False)
        counter = store.counter(HEAD, Rate.parse(kind))
        await warm(store, counter)
        ask(own_server.port, "REPLICAOF", "127.0.0.1", 1)
        left = store._pipe()
        found = await asyncio.gather(*(counter.atake("u", 1, NOW) for _ in range(2)), return_exceptions=True)
        assert [type(one) for one in found] == [StoreError] * 2
        assert left is not None
        assert (left.closed, store._pipe()) == (True, None)
        ask(own_server.port, "REPLICAOF", "NO", "ONE")
        assert (await counter.atake("u", 1, NOW))[0]
        await store.aclose()

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_forgotten_script_is_loaded_again_and_counts_once(
        self, kind: str, store: RedisStore, client: redis.Redis
    ) -> None:
        counter, other = store.counter(HEAD, Rate.parse(kind)), store.counter(HEAD, Rate.parse("9/m"))
        await warm(store, counter, other)
        for asked in range(2):
            client.execute_command("SCRIPT FLUSH")
            awaited = (other.atake("v", 1, NOW), *(counter.atake("u", 1, NOW) for _ in range(2)))
            futures = [asyncio.ensure_future(one) for one in awaited]
            found = await asyncio.gather(*futures)
            assert [used(one) for one in found] == [asked, 2 * asked, 2 * asked + 1]
        client.execute_command("SCRIPT FLUSH")
        assert used(counter.take("u", 1, NOW)) == 4
        assert used(await counter.atake("u", 1, NOW)) == 5
        await store.aclose()

    async def test_a_script_that_cannot_be_loaded_is_an_error(self, own_server: Server) -> None:
        store = RedisStore(own_server.url, timeout=PATIENT)
        counter = store.counter(HEAD, Rate.parse("5/h"))
        await warm(store, counter)
        ask(own_server.port, "SCRIPT", "FLUSH")
        ask(own_server.port, "ACL", "SETUSER", "default", "-script")
        futures = [asyncio.ensure_future(counter.atake("u", 1, NOW)) for _ in range(3)]
        futures[1].cancel()
        found = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(one) for one in found] == [StoreError, asyncio.CancelledError, StoreError]
        assert "NOSCRIPT" in str(found[2])
        await store.aclose()

    async def test_a_lost_connection_is_told_to_all_and_replaced(self, proxy: CountingProxy) -> None:
        store = RedisStore(proxy.url, timeout=PATIENT)
        counter = store.counter(HEAD, Rate.parse("9/h"))
        await warm(store, counter)
        proxy.lose_replies = 1
        found = await asyncio.gather(*(counter.atake("u", 1, NOW) for _ in range(3)), return_exceptions=True)
        assert [str(one) for one in found] == ["Redis: ConnectionError: the server closed the connection"] * 3
        assert used(await counter.atake("u", 1, NOW)) == 1  # the first was on its way, the others were not
        await store.aclose()

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_reply_to_something_else_is_an_error_for_all_who_wait(self, kind: str, store: RedisStore) -> None:
        counter = store.counter(HEAD, Rate.parse(kind))
        await warm(store, counter)
        pipe = store._pipe()
        assert pipe is not None
        asked = [asyncio.ensure_future(counter.atake("u", 1, NOW)) for _ in range(4)]
        pipe.data_received(b"$2\r\nOK\r\n")
        assert [type(one) for one in await asyncio.gather(*asked, return_exceptions=True)] == [StoreError] * 4
        assert pipe.closed
        assert used(await counter.atake("v", 1, NOW)) == 0
        await store.aclose()

    async def test_a_reply_to_something_else_is_an_error_for_a_whole_parcel(self, store: RedisStore) -> None:
        counter = store.counter(HEAD, Rate.parse("9/h"))
        await warm(store, counter)
        pipe = store._pipe()
        assert pipe is not None
        asked = [asyncio.ensure_future(counter.atake("u", 1, NOW)) for _ in range(4)]
        pipe.data_received(b":0\r\n")
        pipe._send()  # as the loop does at the end of this turn
        pipe.data_received(b"*1\r\n:1\r\n")
        first, *others = await asyncio.gather(*asked, return_exceptions=True)
        assert first == (True, (0,), NOW)
        assert [type(one) for one in others] == [StoreError] * 3
        assert ["not a reply" in str(one) for one in others] == [True] * 3
        await store.aclose()

    async def test_too_many_outstanding_checks_are_refused(
        self, redis_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis_pipe, "MAX_OUTSTANDING", 5)
        store = RedisStore(redis_url, timeout=PATIENT)
        counter, other = store.counter(HEAD, Rate.parse("9/h")), store.counter(HEAD, Rate.parse("9/m"))
        await warm(store, counter, other)
        for _ in range(2):
            asked = [one.atake("u", 1, NOW) for one in (counter, counter, counter, other, other, counter, other)]
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(one) for one in found] == [tuple] * 5 + [StoreError] * 2
            assert "5 checks are waiting" in str(found[6])
        await store.aclose()

    async def test_a_silent_server_is_an_error(self, silent_url: str) -> None:
        store = RedisStore(silent_url, timeout=0.05)
        counter = store.counter(HEAD, Rate.parse("9/h"))
        found = await asyncio.gather(*(counter.atake("u", 1, NOW) for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in found] == [StoreError] * 3
        with pytest.raises(StoreError):
            counter.take("u", 1, NOW)
        await store.aclose()


class TestLoops:
    def test_one_counter_serves_one_loop_after_another_and_threads(self, store: RedisStore) -> None:
        counter = store.counter(HEAD, Rate.parse("9/h"))

        async def three() -> list[int]:
            found = [used(one) for one in await asyncio.gather(*(counter.atake("u", 1, NOW) for _ in range(3)))]
            await store.aclose()
            return found

        assert [asyncio.run(three()), [used(counter.take("u", 1, NOW))], asyncio.run(three())] == [
            *([0, 1, 2], [3], [4, 5, 6])
        ]

    async def test_a_loop_that_ended_before_its_parcel_was_sent_is_let_go(self, store: RedisStore) -> None:
        counter = store.counter(HEAD, Rate.parse("9/h"))
        await warm(store, counter)
        ended = asyncio.new_event_loop()
        ended.close()
        counter._open[ended] = cast(Parcel, "left behind")
        assert [used(one) for one in await asyncio.gather(*(counter.atake("u", 1, NOW) for _ in range(3)))] == [0, 1, 2]
        assert counter._open == {}
        await store.aclose()

    async def test_loops_at_the_same_time_do_not_share_a_command(self, store: RedisStore) -> None:
        counter = store.counter(HEAD, Rate.parse("1000/h"))

        async def many() -> list[int]:
            found = [used(one) for one in await asyncio.gather(*(counter.atake("u", 1, NOW) for _ in range(100)))]
            await store.aclose()
            return found

        here, *others = await asyncio.gather(many(), *(asyncio.to_thread(asyncio.run, many()) for _ in range(3)))
        assert sorted([*here, *(units for one in others for units in one)]) == list(range(400))


class TestClients:
    @pytest.mark.parametrize("kind", KINDS)
    async def test_clients_handed_in_are_used(self, kind: str, redis_url: str) -> None:
        async with redis.asyncio.Redis.from_url(redis_url) as aclient:
            with redis.Redis.from_url(redis_url, decode_responses=True) as client:
                store = RedisStore(client=client, async_client=aclient, server_time=False)
                counter = store.counter(HEAD, Rate.parse(kind))
                assert used(counter.take("u", 2, NOW)) == 0
                assert used(await counter.atake("u", 3, NOW)) == 2
                assert counter.take("u", 1, NOW)[0] is False
                await store.aclose()


def test_a_counter_remembers_so_many_callers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_plain, "MAX_KEYS", 3)
    keys = plain(HEAD, Rate.parse("5/h burst 2"), True).keys(NOW)
    for caller in "abcabd":
        assert keys[caller] == f"$14\r\nrl:g:{{{caller}}}:t3600\r\n"
        assert len(keys) <= 3


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_check_of_one_unit_says_is_the_same_for_a_whole_second(kind: str) -> None:
    of = plain(HEAD, Rate.parse(kind), True)
    said = [of.asked("", 1, NOW + us) for us in (0, 999_999, 1_000_000, 999_999, 3_600_000_000)]
    assert said[0] == said[1] == said[3] == said[4]
    assert (said[2] != said[0]) is (kind == "5/h")
    assert of.asked("", 2, NOW) == said[0].removesuffix(b"1\r\n") + b"2\r\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_check_says_what_one_of_many_does(kind: str) -> None:
    for server_time in (True, False):
        of = plain(HEAD, Rate.parse(kind), server_time)
        for cost in (1, 2):
            assert of.asked("key", cost, NOW) == redis_plain.command(of, ("key",), (cost,), (NOW,))


@pytest.mark.parametrize("kind", KINDS)
def test_what_became_of_a_single_check_is_read_as_that_of_one_of_many(kind: str, store: RedisStore) -> None:
    of = plain(HEAD, Rate.parse(kind), False)
    counter = store.counter(HEAD, Rate.parse(kind))
    for cost in (3, 2, 1):
        alone = counter.take("alone", cost, NOW)
        keys = [of.keys(NOW).key(one) for one in ("beside", "another")]
        reply = store._run(of.script, keys, of.arguments((cost, cost), (NOW, NOW)))
        assert of.taken(reply, [NOW, NOW]) == [alone, alone]
