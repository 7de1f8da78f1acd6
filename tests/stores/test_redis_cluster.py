"""An event loop's own connections to a real cluster: slots that move, nodes that go, scripts that are forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest
import redis

from ratelimit import Limiter, Rate, StoreError
from ratelimit.keys import stored_key
from ratelimit.outcome import Charge
from ratelimit.stores import redis_cluster, redis_pipe, redis_plain
from ratelimit.stores.redis import DEFAULT_TIMEOUT, RedisStore
from ratelimit.stores.redis_cluster import Slots, slot_of
from ratelimit.stores.redis_plain import Taken
from ratelimit.testing import START, FakeClock
from tests.servers import HOST, Cluster, Server, ServerError, ask, binary, cluster, free_port, wait_until

PATIENT = 10.0
NOW = START * 1_000_000
RATE = Rate.parse("100/h")
CALLERS = [f"u{n}" for n in range(60)]


@pytest.fixture
def store(cluster_url: str) -> Iterator[RedisStore]:
    store = RedisStore(cluster_url, timeout=PATIENT, server_time=False)
    yield store
    store.close()


@pytest.fixture(scope="module")
def changing_cluster() -> Iterator[Cluster]:
    """A cluster whose slots move; whoever moves them moves them back."""
    with cluster(binary("valkey")) as one:
        yield one


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """A cluster of the test's own, to stop nodes of."""
    with cluster(binary("valkey")) as one:
        yield one


def used(taken: Taken) -> int:
    return taken[1][0]


def key_of(caller: str) -> str:
    return stored_key(Charge("rl:g", caller, RATE, 1, "g"), NOW)


def node_of(caller: str, nodes: Cluster) -> Server:
    """The node that has the caller's slot, while no slot has moved."""
    slot = slot_of(key_of(caller))
    return nodes.nodes[0 if slot <= 5460 else 1 if slot <= 10922 else 2]


class Move:
    """A slot on its way to another node."""

    def __init__(self, caller: str, nodes: Cluster) -> None:
        self.source, self.slot = node_of(caller, nodes), slot_of(key_of(caller))
        self.target = next(node for node in nodes.nodes if node is not self.source)
        self._nodes = nodes.nodes

    def begin(self) -> None:
        """From now on the source sends those away whose keys it has not."""
        ask(self.target.port, "CLUSTER", "SETSLOT", self.slot, "IMPORTING", ask(self.source.port, "CLUSTER", "MYID"))
        ask(self.source.port, "CLUSTER", "SETSLOT", self.slot, "MIGRATING", ask(self.target.port, "CLUSTER", "MYID"))

    def end(self, to: Server, *keys: str) -> None:
        """Takes the keys along."""
        other = self.source if to is self.target else self.target
        with suppress(ServerError):  # it has the slot already
            # Who imports a slot gets it in a new epoch: what others still say of it is older then, and does not count.
            ask(to.port, "CLUSTER", "SETSLOT", self.slot, "IMPORTING", ask(other.port, "CLUSTER", "MYID"))
        if keys:
            ask(other.port, "MIGRATE", HOST, to.port, "", 0, 5000, "KEYS", *keys)
        name = ask(to.port, "CLUSTER", "MYID")
        for node in (to, other, *self._nodes):
            ask(node.port, "CLUSTER", "SETSLOT", self.slot, "NODE", name)


@pytest.fixture
def move(changing_cluster: Cluster) -> Iterator[Move]:
    changing_cluster.flush()
    one = Move("u1", changing_cluster)
    yield one
    for node in changing_cluster.nodes:
        ask(node.port, "FLUSHALL")
    one.end(one.source)


class TestConnections:
    async def test_a_loop_has_one_connection_to_each_node(self, store: RedisStore, running_cluster: Cluster) -> None:
        counter, limiter = store.counter("rl:g", RATE), Limiter(store)
        for step in range(3):
            found = await asyncio.gather(*(counter.atake(caller, 1, NOW) for caller in CALLERS for _ in range(2)))
            assert [used(one) for one in found] == [2 * step, 2 * step + 1] * len(CALLERS)
            assert all(await asyncio.gather(*(limiter.acheck(RATE, caller) for caller in CALLERS)))
        for node in running_cluster.nodes:
            clients = ask(node.port, "CLIENT", "LIST").splitlines()
            assert sum("cmd=evalsha" in client for client in clients) == 1
        await store.aclose()

    async def test_clear_and_settle_take_the_same_way(self, store: RedisStore) -> None:
        limiter, rate = Limiter(store, clock=lambda: NOW), Rate.parse("5/h")
        async with await limiter.areserve(rate, "u", cost=4) as reservation:
            await reservation.asettle(2)
        assert (await limiter.apeek(rate, "u")).remaining == 3
        await limiter.aclear(rate, "u")
        assert (await limiter.apeek(rate, "u")).remaining == 5
        await limiter.aclose()

    async def test_threads_count_in_the_same_keys(self, store: RedisStore) -> None:
        counter = store.counter("rl:g", RATE)
        found = [counter.take("u", 1, NOW), await counter.atake("u", 1, NOW), counter.take("u", 1, NOW)]
        assert [used(one) for one in found] == [0, 1, 2]
        await store.aclose()

    async def test_a_client_handed_in_is_used(self, cluster_url: str) -> None:
        url = cluster_url.replace("redis+cluster", "redis")
        async with redis.asyncio.RedisCluster.from_url(url) as client:
            store = RedisStore(async_client=client, server_time=False)
            counter = store.counter("rl:g", RATE)
            assert [used(await counter.atake("u", 1, NOW)) for _ in range(3)] == [0, 1, 2]
            await store.aclear([Charge("rl:g", "u", RATE, 1, "g")], NOW)
            assert used(await counter.atake("u", 1, NOW)) == 0

    def test_one_counter_serves_one_loop_after_another(self, store: RedisStore) -> None:
        counter = store.counter("rl:g", RATE)

        async def three() -> list[int]:
            found = [used(one) for one in await asyncio.gather(*(counter.atake("u", 1, NOW) for _ in range(3)))]
            await store.aclose()
            return found

        assert [asyncio.run(three()), asyncio.run(three())] == [[0, 1, 2], [3, 4, 5]]


class TestErrands:
    async def test_a_forgotten_script_is_loaded_again_and_counts_once(
        self, store: RedisStore, running_cluster: Cluster
    ) -> None:
        counter = store.counter("rl:g", RATE)
        for step in range(3):
            found = await asyncio.gather(*(counter.atake(caller, 1, NOW) for caller in CALLERS))
            assert [used(one) for one in found] == [step] * len(CALLERS)
            for node in running_cluster.nodes:
                ask(node.port, "SCRIPT", "FLUSH")
        await store.aclose()

    async def test_a_script_that_cannot_be_loaded_is_an_error(self, own_cluster: Cluster) -> None:
        store = RedisStore(own_cluster.url, timeout=PATIENT)
        counter = store.counter("rl:g", RATE)
        for node in own_cluster.nodes:
            ask(node.port, "ACL", "SETUSER", "default", "-script")
        with pytest.raises(StoreError, match="NOSCRIPT"):
            await counter.atake("u", 1, NOW)
        await store.aclose()

    async def test_a_cancelled_check_harms_no_other(self, store: RedisStore) -> None:
        counter = store.counter("rl:g", RATE)
        for first in (0, 2):
            futures = [asyncio.ensure_future(counter.atake("u", 1, NOW)) for _ in range(4)]
            futures[1].cancel()
            found = await asyncio.gather(*futures, return_exceptions=True)
            # What is cancelled before the connection is there is not sent; afterwards it is on its way.
            counted = 3 if first == 0 else 4
            assert [type(one) for one in found] == [tuple, asyncio.CancelledError, tuple, tuple]
            assert used(await counter.atake("u", 1, NOW)) == first + counted + (first > 0) * 2
        await store.aclose()

    async def test_a_key_of_another_kind_is_an_error_for_its_check_alone(
        self, store: RedisStore, running_cluster: Cluster
    ) -> None:
        counter = store.counter("rl:g", RATE)
        ask(node_of("bad", running_cluster).port, "LPUSH", key_of("bad"), "not a counter")
        asked = [counter.atake(caller, 1, NOW) for caller in ("u", "bad", "u")]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in found] == [tuple, StoreError, tuple]
        assert "WRONGTYPE" in str(found[1])
        await store.aclose()

    async def test_too_many_outstanding_checks_are_refused(
        self, store: RedisStore, running_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis_pipe, "MAX_OUTSTANDING", 5)
        counter = store.counter("rl:g", RATE)
        for _ in range(2):  # those that wait for the map and the connection, then those that wait for a reply
            found = await asyncio.gather(*(counter.atake("u", 1, NOW) for _ in range(7)), return_exceptions=True)
            assert [type(one) for one in found] == [tuple] * 5 + [StoreError] * 2
            assert "5 checks are waiting" in str(found[6])
        node = node_of("u", running_cluster)
        neighbour = next(caller for caller in CALLERS if node_of(caller, running_cluster) is node)
        asked = [counter.atake(caller, 1, NOW) for caller in ("u",) * 5 + (neighbour,)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one) for one in found] == [tuple] * 5 + [StoreError]
        await store.aclose()


class TestChanges:
    async def test_a_slot_that_has_moved_is_followed(self, move: Move, changing_cluster: Cluster) -> None:
        store = RedisStore(changing_cluster.url, timeout=PATIENT, server_time=False)
        counter, charge = store.counter("rl:g", RATE), Charge("rl:g", "u1", RATE, 1, "g")
        assert used(await counter.atake("u1", 1, NOW)) == 0
        move.begin()
        move.end(move.target, key_of("u1"))
        found = await asyncio.gather(*(counter.atake("u1", 1, NOW) for _ in range(10)))
        assert sorted(used(one) for one in found) == list(range(1, 11))
        (outcome,) = await store.aapply([charge], NOW)
        assert outcome.remaining == 100 - 12
        assert ask(move.target.port, "GET", key_of("u1")) == "12"
        await store.aclose()

    async def test_a_slot_that_is_moving_is_asked_for_at_both_nodes(
        self, move: Move, changing_cluster: Cluster
    ) -> None:
        store = RedisStore(changing_cluster.url, timeout=PATIENT, server_time=False)
        counter, other = store.counter("rl:g", RATE), store.counter("rl:other", RATE)
        assert used(await counter.atake("u1", 1, NOW)) == 0
        move.begin()
        # This key is where it was, the other one is new: the source knows that it would be at the target.
        assert used(await counter.atake("u1", 1, NOW)) == 1
        found = await asyncio.gather(*(other.atake("u1", 1, NOW) for _ in range(10)))
        assert sorted(used(one) for one in found) == list(range(10))
        assert ask(move.target.port, "CLUSTER", "COUNTKEYSINSLOT", move.slot) == "1"
        move.end(move.target, key_of("u1"))
        assert (used(await counter.atake("u1", 1, NOW)), used(await other.atake("u1", 1, NOW))) == (2, 10)
        await store.aclose()

    @pytest.mark.parametrize("known", [True, False])
    async def test_keys_that_are_on_their_way_are_asked_for_again(
        self, known: bool, move: Move, changing_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = RedisStore(changing_cluster.url, timeout=PATIENT, server_time=False)
        clock, two = FakeClock(), Rate.parse("100/h; 200/d burst 200")
        limiter = Limiter(store, clock=clock)
        keys = [*await self._keys(limiter, two, move)] if known else []
        waits = []

        async def ended_meanwhile(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 3:
                move.end(move.target, *keys[1:])

        monkeypatch.setattr(redis_cluster, "sleep", ended_meanwhile)
        move.begin()
        if known:
            ask(move.source.port, "MIGRATE", HOST, move.target.port, "", 0, 5000, "KEYS", keys[0])
        decision = await limiter.acheck(two, "u1")
        assert (decision.degraded, decision.remaining) == (False, 99 - known)
        assert len(waits) == 3
        assert waits == sorted(waits)
        assert sum(waits) < DEFAULT_TIMEOUT
        await store.aclose()

    @staticmethod
    async def _keys(limiter: Limiter, rate: Rate, move: Move) -> list[str]:
        assert await limiter.acheck(rate, "u1")
        return ask(move.source.port, "CLUSTER", "GETKEYSINSLOT", move.slot, 9).split()

    async def test_keys_that_never_arrive_are_an_error(
        self, move: Move, changing_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = RedisStore(changing_cluster.url, timeout=PATIENT, server_time=False)
        waits = []

        async def wait(seconds: float) -> None:
            waits.append(seconds)

        monkeypatch.setattr(redis_cluster, "sleep", wait)
        move.begin()
        decision = await Limiter(store, clock=FakeClock()).acheck(Rate.parse("100/h; 200/d burst 200"), "u1")
        assert decision.degraded
        assert len(waits) == redis_cluster.TURNS - 1  # one was for the node that the slot moves to
        await store.aclose()

    async def test_an_errand_is_not_sent_around_for_ever(
        self, store: RedisStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counter = store.counter("rl:g", RATE)
        await counter.atake("u", 1, NOW)
        nodes = store._own().nodes
        assert nodes is not None
        errand = redis_cluster.Errand(nodes, slot_of("{u}"), redis_cluster._ASKING, None)
        monkeypatch.setattr(nodes, "search", lambda errand, later=0: None)
        for _ in range(redis_cluster.TURNS):
            assert errand.answer(redis.ResponseError(f"MOVED {errand.slot} :{free_port()}")) == 1
            assert not errand.future.done()
        assert errand.answer(redis.ResponseError(f"MOVED {errand.slot} :1")) == 1
        with pytest.raises(StoreError, match="MOVED"):
            await errand.future
        await store.aclose()

    async def test_a_node_that_nobody_knows_is_looked_for_in_a_new_map(self, store: RedisStore) -> None:
        counter = store.counter("rl:g", RATE)
        await counter.atake("u", 1, NOW)
        nodes = store._own().nodes
        assert nodes is not None
        errand = redis_cluster.Errand(nodes, slot_of("{u}"), b"*1\r\n$4\r\nPING\r\n", None)
        errand.answer(redis.ResponseError(f"ASK {errand.slot} :{free_port()}"))
        assert await errand.future == b"PONG"
        await store.aclose()

    async def test_a_node_that_is_down_is_an_error_for_its_slots_alone(self, own_cluster: Cluster) -> None:
        store = RedisStore(own_cluster.url, timeout=PATIENT, server_time=False)
        counter = store.counter("rl:g", RATE)
        await asyncio.gather(*(counter.atake(caller, 1, NOW) for caller in CALLERS))
        down = own_cluster.nodes[1]
        down.stop()
        expected = [StoreError if node_of(caller, own_cluster) is down else tuple for caller in CALLERS]
        for _ in range(2):  # those that were sent or would be, then those whose node cannot be connected
            asked = [counter.atake(caller, 1, NOW) for caller in CALLERS]
            assert [type(one) for one in await asyncio.gather(*asked, return_exceptions=True)] == expected
        await store.aclose()

    async def test_another_node_that_takes_over_is_found_without_an_error(self, own_cluster: Cluster) -> None:
        store = RedisStore(own_cluster.url, timeout=PATIENT, server_time=False)
        counter, caller = store.counter("rl:g", RATE), CALLERS[0]
        assert used(await counter.atake(caller, 1, NOW)) == 0
        node, slot, nodes = node_of(caller, own_cluster), slot_of(key_of(caller)), store._own().nodes
        others = [one for one in own_cluster.nodes if one is not node]
        node.stop()
        for one in others:
            ask(one.port, "CLUSTER", "SETSLOT", slot, "NODE", ask(others[0].port, "CLUSTER", "MYID"))
        assert nodes is not None
        while not nodes._routes[slot].closed:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert used(await counter.atake(caller, 1, NOW)) == 0
        assert ask(others[0].port, "GET", key_of(caller)) == "1"
        await store.aclose()

    async def test_a_node_that_comes_back_is_used_again(self, own_cluster: Cluster) -> None:
        store = RedisStore(own_cluster.url, timeout=PATIENT, server_time=False)
        counter, caller = store.counter("rl:g", RATE), CALLERS[0]
        node = node_of(caller, own_cluster)
        assert used(await counter.atake(caller, 1, NOW)) == 0
        node.restart()
        wait_until(lambda: "cluster_state:ok" in ask(node.port, "CLUSTER", "INFO"), "the cluster is whole")
        found = [await asyncio.gather(counter.atake(caller, 1, NOW), return_exceptions=True) for _ in range(2)]
        assert used(found[1][0]) in (0, 1)  # the first one may have been the one to notice
        await store.aclose()

    async def test_a_slot_that_nobody_has_is_an_error(self, own_cluster: Cluster) -> None:
        store = RedisStore(own_cluster.url, timeout=PATIENT, server_time=False)
        counter, caller = store.counter("rl:g", RATE), CALLERS[0]
        node, slot = node_of(caller, own_cluster), slot_of(key_of(caller))
        assert used(await counter.atake(caller, 1, NOW)) == 0
        for one in own_cluster.nodes:
            ask(one.port, "CLUSTER", "DELSLOTS", slot)
            ask(one.port, "CONFIG", "SET", "cluster-require-full-coverage", "no")
        for _ in range(2):
            with pytest.raises(StoreError, match=r"CLUSTERDOWN|not covered"):
                await counter.atake(caller, 1, NOW)
        ask(node.port, "CLUSTER", "ADDSLOTS", slot)
        wait_until(lambda: "cluster_state:ok" in ask(node.port, "CLUSTER", "INFO"), "the cluster is whole")
        assert used(await counter.atake(caller, 1, NOW)) <= 1
        await store.aclose()


class TestOutages:
    async def test_a_cluster_that_cannot_be_reached_is_an_error(self) -> None:
        store = RedisStore(f"redis+cluster://{HOST}:{free_port()}", timeout=PATIENT)
        counter = store.counter("rl:g", RATE)
        for _ in range(2):
            with pytest.raises(StoreError):
                await counter.atake("u", 1, NOW)
        await store.aclose()

    async def test_a_cluster_that_is_silent_is_an_error(self, silent_url: str) -> None:
        store = RedisStore(silent_url.replace("redis", "redis+cluster"), timeout=0.05)
        found = await asyncio.gather(
            *(store.counter("rl:g", RATE).atake("u", 1, NOW) for _ in range(3)), return_exceptions=True
        )
        assert [type(one) for one in found] == [StoreError] * 3
        await store.aclose()

    async def test_closing_ends_what_waits_for_a_connection(self, silent_url: str) -> None:
        store = RedisStore(silent_url.replace("redis", "redis+cluster"), timeout=PATIENT)
        asked, cancelled = (asyncio.ensure_future(store.counter("rl:g", RATE).atake("u", 1, NOW)) for _ in range(2))
        await asyncio.sleep(0)
        cancelled.cancel()
        await store.aclose()
        with pytest.raises(StoreError, match="closed"):
            await asked
        assert cancelled.cancelled()


def test_slots_are_remembered_for_so_many_callers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_plain, "MAX_KEYS", 3)
    slots = Slots()
    for caller in ("a", "b", "c", "a", "d{e}"):
        assert slots[caller] == slot_of(f"rl:g:{{{redis_plain.encoded(caller)}}}:1")
        assert len(slots) <= 3
