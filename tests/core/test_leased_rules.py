"""Rules with a lease, as a limiter asks them: what of it a caller sees, and what makes a worker give up what it has in hand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ratelimit import (
    ConfigurationError,
    Identity,
    Limiter,
    MemoryStore,
    Policy,
    Rate,
    RateLimits,
    Rule,
    StoreError,
    prepared,
)
from ratelimit.guard import Guard
from ratelimit.plan import Call
from ratelimit.settings import Settings, override
from ratelimit.testing import FakeClock, isolated
from tests.core.far import FarStore

RULE = Rule("r", "100/m", lease=10)
ANN = Identity(user="ann")


@pytest.fixture
def store() -> FarStore:
    return FarStore()


@pytest.fixture
def limiter(store: FarStore, fake_clock: FakeClock) -> Limiter:
    return Limiter(store, clock=fake_clock)


@pytest.fixture(params=["sync", "async"])
def check(request: pytest.FixtureRequest, limiter: Limiter) -> Iterator[Any]:
    with asyncio.Runner() as runner:

        def ask(*args: Any, **options: Any) -> Any:
            if request.param == "sync":
                return limiter.check(*args, **options)
            return runner.run(limiter.acheck(*args, **options))

        yield ask


def test_a_worker_asks_the_store_once_for_many_calls(check: Any, store: FarStore) -> None:
    decisions = [check(RULE, ANN) for _ in range(101)]
    assert [bool(decision) for decision in decisions] == [True] * 100 + [False]
    assert [decision.remaining for decision in decisions] == [*range(99, -1, -1), 0]
    assert (decisions[-1].retry_after, decisions[5].key, decisions[5].rule) == (60.0, "user:ann", "r")
    assert store.trips == [10] * 10 + [1]


def test_a_known_denial_does_not_hide_what_is_in_hand(check: Any, store: FarStore) -> None:
    assert check(RULE, "u", cost=95)
    assert check(RULE, "u", cost=3)
    assert not check(RULE, "u", cost=3)
    assert check(RULE, "u", cost=2)
    assert store.trips == [95, 3, 3, 2]


def test_the_lease_is_the_rates_that_holds_for_the_caller(check: Any, store: FarStore) -> None:
    tiered = Rule("t", "10/m", tiered=True, lease=10)
    admin = Identity(user="root", superuser=True)
    assert [sum(bool(check(tiered, who)) for _ in range(101)) for who in (ANN, admin)] == [20, 100]
    assert store.trips == [10] * 2 + [1] + [10] * 10 + [1]


def test_rules_that_are_alike_have_one_hand(check: Any, store: FarStore) -> None:
    for _ in range(10):
        assert check(Rule("r", "100/m", lease=10), "u")
    assert store.trips == [10]
    assert check(Rule("r", "100/m", lease=11), "u")
    assert check(RULE, "u", group="other")
    assert store.trips == [10, 11, 10]


def test_a_limiter_has_no_more_of_them_than_of_prepared_rules(
    limiter: Limiter, store: FarStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "MAX_PREPARED", 2)
    for group in ("a", "b", "c"):
        limiter.check(RULE, "u", group=group)
    assert len(limiter.shelf._leases) == 1
    assert store.trips == [10] * 3


async def test_a_policy_of_one_rule_is_that_rule(store: FarStore, tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "policies.toml"
    path.write_text('[uploads]\nrules = [{ name = "u", rate = "600/m", lease = 50 }]')
    limiter = Limiter(store, clock=fake_clock, settings=Settings(policy_file=str(path)))
    assert all(limiter.check("uploads", ANN) for _ in range(50))
    assert all([await limiter.acheck(Policy(RULE), ANN) for _ in range(10)])
    assert store.trips == [50, 10]


async def test_decorators_take_leases_too(limiter: Limiter, store: FarStore) -> None:
    guard = Guard(RULE, facts=lambda: {"path": "/"}, limiter=limiter)
    assert all(guard.check(ANN, "place") for _ in range(5))
    assert all([await guard.acheck(ANN, "place") for _ in range(5)])
    assert store.trips == [10]


async def test_other_ways_of_asking_find_leased_units_used(limiter: Limiter, store: FarStore) -> None:
    assert limiter.check(RULE, "u")
    assert limiter.peek(RULE, "u").remaining == 90
    assert limiter.check_many([Call(RULE, "u", cost=5)]).remaining == 85
    with limiter.reserve(RULE, "u", cost=20) as reserved:
        reserved.settle(15)
    assert limiter.peek(RULE, "u").remaining == 70
    assert all([await limiter.acheck(RULE, "u") for _ in range(9)])
    assert store.trips == [10]


class TestForEverybody:
    """One budget, and one hand in each worker: where a lease saves most."""

    RULE = Rule("all", "100/m", by="global", lease=10)

    def test_all_callers_spend_from_one_hand(self, check: Any, limiter: Limiter, store: FarStore) -> None:
        callers = ["u", ANN, Identity(ip="203.0.113.7"), Identity(name="n"), "global"] * 20
        decisions = [check(self.RULE, caller) for caller in callers]
        assert [decision.remaining for decision in decisions] == list(range(99, -1, -1))
        assert {decision.key for decision in decisions} == {"global"}
        assert not check(self.RULE, "somebody else")
        assert store.trips == [10] * 10 + [1]
        assert limiter.peek(self.RULE, "the store knows as well").remaining == 0

    def test_a_denial_is_known_for_all(self, check: Any, store: FarStore) -> None:
        plain = Rule("all", "2/m", by="global")
        assert [bool(check(plain, caller)) for caller in ("a", "b", "c", ANN, "e")] == [True, True, False, False, False]
        assert store.trips == [1, 1, 1]
        assert check(plain, "f").retry_after == 60.0

    async def test_after_a_clear_for_anybody_all_start_anew(self, limiter: Limiter, store: FarStore) -> None:
        for clear in (limiter.clear, limiter.aclear):
            assert limiter.check(self.RULE, "a", cost=95)
            assert limiter.check(self.RULE, "b")
            assert not limiter.check(self.RULE, "c", cost=10)
            done = clear(self.RULE, ANN)
            if done is not None:
                await done
            assert limiter.check(self.RULE, "c", cost=10).remaining == 90
            limiter.clear(self.RULE, "")

    @pytest.mark.parametrize("store", ["memory://"])
    def test_in_memory_it_is_one_budget_too(self, check: Any, fake_clock: FakeClock) -> None:
        assert [check(self.RULE, caller).remaining for caller in ("a", ANN, "global")] == [99, 98, 97]
        decision = check(self.RULE, "b", cost=98)
        assert (decision.allowed, decision.key, decision.remaining) == (False, "global", 97)


def test_a_category_whose_rate_has_become_another_kind_has_no_leases(check: Any) -> None:
    rule = Rule("r", "AI_QUERY", lease=10)
    assert check(rule, ANN)
    with (
        override(overrides={"AI_QUERY": "10/m sliding"}),
        pytest.raises(ConfigurationError, match="rule 'r', lease: '10/m sliding': only for one rate in clock-aligned"),
    ):
        check(rule, ANN)


class TestInHandNoMore:
    @pytest.mark.parametrize("named", [RULE, None], ids=["rule", "all"])
    async def test_after_a_clear(self, named: Rule | None, limiter: Limiter, store: FarStore) -> None:
        for clear in (limiter.clear, limiter.aclear):
            assert limiter.check(RULE, "u", cost=95)
            assert limiter.check(RULE, "u")
            assert limiter.check(RULE, "other", cost=9)
            done = clear(named, "u")
            if done is not None:
                await done
            assert limiter.peek(RULE, "u").remaining == 100
            assert limiter.check(RULE, "u").remaining == 99
            assert limiter.check(RULE, "other").remaining == 90
            limiter.clear(None, "u")
            limiter.clear(None, "other")
        assert store.trips == [95, 1, 10, 10] * 2

    def test_of_another_rule_it_stays(self, limiter: Limiter, store: FarStore) -> None:
        other = Rule("other", "100/m", lease=10)
        limiter.check(other, "u")
        limiter.check(RULE, "u")
        limiter.clear(RULE, "u")
        limiter.check(other, "u")
        limiter.check(RULE, "u")
        assert store.trips == [10] * 3

    def test_after_a_change_of_settings(self) -> None:
        store = FarStore()
        rule = Rule("r", "AI_QUERY", lease=10)
        with isolated(store) as limiter:
            assert limiter.check(rule, "u").limit == 20
            with override(overrides={"AI_QUERY": "12/m"}):
                assert [bool(limiter.check(rule, "u")) for _ in range(3)] == [True, True, False]
        assert store.trips == [10, 10, 1, 1, 1]  # the second lease was refused: there were two left


class TestOutages:
    async def test_what_is_in_hand_is_spent_and_then_the_policy_decides(
        self, limiter: Limiter, store: FarStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        closed = Rule("r", "100/m", lease=4, on_outage="closed")
        assert limiter.check(closed, "u")
        store.error = StoreError("down")
        with caplog.at_level(logging.WARNING, "ratelimit"):
            asked = [limiter.check(closed, "u"), await limiter.acheck(closed, "u")]
            assert [(bool(decision), decision.degraded) for decision in asked] == [(True, False)] * 2
            assert not limiter.check(closed, "u", cost=2)
            assert limiter.check(closed, "u")  # its unit was put back, and it tells nobody that the store answers again
            assert not await limiter.acheck(closed, "u")
            assert limiter.check(closed, "u").degraded
        said = [record.message for record in caplog.records if "store" in record.message]
        assert len(said) == 1
        store.error = None
        assert limiter.check(closed, "u").remaining == 95


def test_in_memory_there_is_nothing_to_be_saved(fake_clock: FakeClock) -> None:
    limiters = [Limiter(MemoryStore(), clock=fake_clock) for _ in range(2)]
    leased = [limiters[0].check(RULE, "u").remaining for _ in range(3)]
    plain = [limiters[1].check(Rate.parse("100/m"), "u").remaining for _ in range(3)]
    assert leased == plain == [99, 98, 97]
    assert limiters[0].shelf._leases == {}


def test_a_category_may_have_a_limit_below_the_lease(limiter: Limiter, store: FarStore) -> None:
    rule = Rule("r", RateLimits.AUTH_LOGIN, lease=10)
    assert sum(bool(limiter.check(rule, "u")) for _ in range(6)) == 5
    assert store.trips == [1] * 6
