"""The Redis store on a real cluster and behind a real sentinel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from redis.crc import key_slot

from ratelimit import Call, Decision, Identity, Limiter, Policy, Rate, Rule
from ratelimit.errors import StoreError
from ratelimit.outcome import Charge, Outcome
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import CALLERS, FakeClock, PlacesConformance, StoreConformance
from tests.servers import Cluster, ask

PATIENT = 10.0


class TestRedisStoreOnACluster(StoreConformance, PlacesConformance):
    @pytest.fixture
    def store(self, cluster_url: str) -> Iterator[RedisStore]:
        store = RedisStore(cluster_url, timeout=PATIENT, server_time=False)
        yield store
        store.close()

    def test_a_script_is_loaded_again_on_every_node(
        self, store: RedisStore, running_cluster: Cluster, fake_clock: FakeClock
    ) -> None:
        limiter = Limiter(store, clock=fake_clock)
        for _ in range(2):
            for node in running_cluster.nodes:
                ask(node.port, "SCRIPT", "FLUSH")
            assert all(limiter.check(Rate.parse("2/s; 4/m"), f"u{n}") for n in range(20))
        assert not any(limiter.check(Rate.parse("2/s; 4/m"), f"u{n}") for n in range(20))

    def test_calls_of_one_caller_are_one_transaction_whatever_its_name(
        self, store: RedisStore, fake_clock: FakeClock
    ) -> None:
        limiter = Limiter(store, clock=fake_clock)
        for caller in CALLERS:
            calls = [Call("AI_QUERY", caller), Call(Rate.parse("1/s; 2/m"), caller, "g")]
            decisions = [limiter.check_many(calls) for _ in range(2)]
            assert [(d.allowed, d.degraded) for d in decisions] == [(True, False), (False, False)], caller
            assert limiter.peek("AI_QUERY", caller).remaining == 19


class TestRedisStoreBehindASentinel(StoreConformance, PlacesConformance):
    @pytest.fixture
    def store(self, sentinel_url: str) -> Iterator[RedisStore]:
        store = RedisStore(sentinel_url, timeout=PATIENT, server_time=False)
        yield store
        store.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_node_that_fails_in_the_middle_leaves_nothing_taken(
    mode: str, cluster_url: str, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RedisStore(cluster_url, timeout=PATIENT, server_time=False)
    limiter, ann = Limiter(store, clock=fake_clock), Identity(user="ann", ip="203.0.113.7")
    rare, common = Rule("rare", "3/m", by="ip"), Rule("common", "9/m", by="user")

    def broken(charges: list[Charge], *_: object) -> list[Outcome]:
        if charges[0].rule == "common":
            raise StoreError("this node is down")
        return applied(charges, *_)

    async def abroken(charges: list[Charge], *_: object) -> list[Outcome]:
        return broken(charges, *_)

    applied = store._apply
    with monkeypatch.context() as patch:
        patch.setattr(store, "_apply", broken)
        patch.setattr(store, "_aapply", abroken)

        async def acheck() -> Decision:
            decision = await limiter.acheck(Policy(rare, common), ann)
            await limiter.aclose()
            return decision

        decision = asyncio.run(acheck()) if mode == "async" else limiter.check(Policy(rare, common), ann)
    assert decision.degraded
    assert [limiter.peek(rule, ann).remaining for rule in (rare, common)] == [3, 9]
    store.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_reservation_of_several_callers_is_settled_for_each(
    mode: str, cluster_url: str, fake_clock: FakeClock
) -> None:
    store = RedisStore(cluster_url, timeout=PATIENT, server_time=False)
    limiter, ann = Limiter(store, clock=fake_clock), Identity(user="ann", ip="203.0.113.7")
    rules = [Rule("address", "30/m", by="ip"), Rule("user", "90/m", by="user")]

    async def asettle() -> None:
        await (await limiter.areserve(Policy(*rules), ann, cost=20)).asettle(5)
        await limiter.aclose()

    if mode == "async":
        asyncio.run(asettle())
    else:
        limiter.reserve(Policy(*rules), ann, cost=20).settle(5)
    assert [limiter.peek(rule, ann).remaining for rule in rules] == [25, 85]
    limiter.clear(Policy(*rules), ann)
    assert [limiter.peek(rule, ann).remaining for rule in rules] == [30, 90]
    store.close()


@pytest.mark.parametrize("caller", CALLERS)
def test_all_keys_of_a_caller_share_a_slot(caller: str) -> None:
    from ratelimit.keys import further_head, head, keyed

    rate = Rate.parse("1/h")
    heads = [head("rl", "a"), head("rl", "b{c}"), further_head(head("rl", "}"), rate)]
    keys = [keyed(one, caller) for one in heads]
    assert len({key_slot(f"{key}:1".encode()) for key in keys}) == 1


class TestCallersInDifferentSlots:
    """A policy of several callers on a cluster: slot by slot, given back when one refuses."""

    POLICY = Policy(
        Rule("everybody", "10/m", by="global"),
        Rule("address", "3/m burst 3", by="ip"),
        Rule("user", "2/m sliding", by="user"),
    )

    @pytest.fixture
    def limiter(self, cluster_url: str, fake_clock: FakeClock) -> Iterator[Limiter]:
        store = RedisStore(cluster_url, timeout=PATIENT, server_time=False)
        yield Limiter(store, clock=fake_clock)
        store.close()

    @pytest.mark.parametrize("mode", ["sync", "async"])
    def test_a_refused_call_spends_none_of_the_others(self, mode: str, limiter: Limiter) -> None:
        def left(who: Identity) -> list[int]:
            return [limiter.peek(Policy(rule), who).remaining for rule in self.POLICY]

        async def check(who: Identity) -> Decision:
            decision = await limiter.acheck(self.POLICY, who) if mode == "async" else limiter.check(self.POLICY, who)
            await limiter.aclose()
            return decision

        ann, bob, cat = (Identity(user=name, ip="203.0.113.7") for name in ("ann", "bob", "cat"))
        assert [asyncio.run(check(ann)).allowed for _ in range(2)] == [True, True]
        refused = asyncio.run(check(ann))
        assert (refused.allowed, refused.rule, refused.degraded) == (False, "user", False)
        assert left(ann) == [8, 1, 0]
        assert asyncio.run(check(bob)).allowed
        refused = asyncio.run(check(cat))
        assert (refused.allowed, refused.rule) == (False, "address")
        assert left(cat) == [7, 0, 2]
        assert {part.rule: part.outcome.remaining for part in refused.parts} == {
            "everybody": 7,
            "address": 0,
            "user": 2,
        }
