"""Figures worked out by hand, for the reference model as for every store: a model that is wrong proves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratelimit import Limiter, MemoryStore, Rate, Rule
from ratelimit.decision import Decision
from ratelimit.plan import Call
from ratelimit.stores.base import Store
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import START, FakeClock
from tests.model.reference import Model

EVERY_KIND = ("{}/{}", "{}/{} anchored", "{}/{} sliding", "{}/{} burst {}", "{}/{} leaky burst {}")
TEN_A_MINUTE = [kind.format(10, "m", 10) for kind in EVERY_KIND]


class Scenarios:
    @pytest.fixture
    def limiter(self, store: Store) -> Limiter:
        self.clock = FakeClock()
        return Limiter(store, clock=self.clock)

    def at(self, seconds: float) -> None:
        """Moves the clock to `seconds` after the start."""
        self.clock.set(START + seconds)

    @pytest.mark.parametrize("kind", EVERY_KIND)
    def test_a_limit_of_zero_refuses_the_first_call(self, limiter: Limiter, kind: str) -> None:
        for cost in (1, 0):
            refused = limiter.check(Rate.parse(kind.format(0, "m", 5)), "u", cost=cost)
            assert figures(refused) == (False, 0, None)

    @pytest.mark.parametrize("rate", TEN_A_MINUTE)
    def test_costs(self, limiter: Limiter, rate: str) -> None:
        ten = Rate.parse(rate)
        asked = [(5, True, 5), (100, False, 5), (0, True, 5), (5, True, 0), (1, False, 0), (0, True, 0)]
        for cost, allowed, remaining in asked:
            decision = limiter.check(ten, "u", cost=cost)
            assert (decision.allowed, decision.remaining) == (allowed, remaining)
        assert figures(limiter.check(ten, "fresh", cost=11)) == (False, 10, None)
        assert [bool(limiter.check(ten, "greedy", cost=cost)) for cost in (6, 5, 3, 2, 1, 1)] == [
            *(True, False, True, False, True, False)
        ]

    def test_calls_below_the_rate_are_never_refused(self, limiter: Limiter) -> None:
        for number in range(200):
            self.at(2.5 * number)
            assert limiter.check(Rate.parse("5/10s sliding"), "u")

    def test_a_caller_who_keeps_asking_gets_in_again(self, limiter: Limiter) -> None:
        passed = []
        for second in (0, 0, 0, 0, *range(31)):
            self.at(second)
            if limiter.check(Rate.parse("5/10s sliding"), "u"):
                passed.append(second)
        # Seen at 12 s: 5 * 8/10 + 0; at 14 s: 5 * 6/10 + 1; and so on. At 20 s: 4 + 0, at 23 s: 4 * 7/10 + 1.
        assert passed == [0, 0, 0, 0, 0, 12, 14, 16, 18, 20, 23, 25, 28, 30]

    def test_the_last_window_counts_by_its_share_in_view(self, limiter: Limiter) -> None:
        rate = Rate.parse("100/10s sliding")
        assert limiter.check(rate, "u", cost=50)
        self.at(11)
        assert limiter.check(rate, "u", cost=10).remaining == 45
        assert limiter.check(rate, "u", cost=3).remaining == 42
        refused = limiter.check(rate, "u", cost=43)
        assert figures(refused) == (False, 42, 0.2)  # one more of the fifty goes out of view every 0.2 s
        assert [bool(limiter.check(rate, "u")) for _ in range(43)] == [True] * 42 + [False]

    def test_a_sliding_limit_of_one(self, limiter: Limiter) -> None:
        once = Rate.parse("1/10s sliding")
        assert limiter.check(once, "u")
        self.at(5)
        assert limiter.check(once, "u").retry_after == 15
        self.at(20)
        assert limiter.check(once, "u")

    def test_a_window_that_began_with_the_first_call(self, limiter: Limiter) -> None:
        self.at(7.5)
        waits = [limiter.check(Rate.parse("2/10s anchored"), "u").retry_after for _ in range(3)]
        assert waits == [0, 0, 10]
        for second, wait in ((8.5, 9), (12.5, 5), (17.499999, 0.000001)):
            self.at(second)
            assert limiter.check(Rate.parse("2/10s anchored"), "u").retry_after == wait
        self.at(17.5)
        assert limiter.check(Rate.parse("2/10s anchored"), "u").reset_after == 10

    def test_a_leaky_bucket_spaces_calls_evenly(self, limiter: Limiter) -> None:
        three = Rate.parse("3/s leaky")
        assert limiter.check(three, "u").reset_after == 0.333334
        assert limiter.check(three, "u").retry_after == 0.333334
        self.at(0.333333)
        assert limiter.check(three, "u").retry_after == 0.000001
        self.at(0.333334)
        assert limiter.check(three, "u")

    def test_a_clock_that_steps_back_frees_nothing_and_mints_nothing(self, limiter: Limiter) -> None:
        rate = Rate.parse("1/s burst 5")
        self.at(100)
        assert limiter.check(rate, "u", cost=3)
        self.at(89)
        assert limiter.check(rate, "u")
        self.at(100)
        assert limiter.check(rate, "u")
        assert figures(limiter.check(rate, "u")) == (False, 0, 1.0)

    def test_a_node_whose_clock_is_behind_gets_nothing_back(self, limiter: Limiter) -> None:
        rate = Rate.parse("2/s burst 4")
        for second, allowed in ((100, [True] * 4 + [False]), (90, [False]), (100, [False])):
            self.at(second)
            assert [bool(limiter.check(rate, "u")) for _ in allowed] == allowed

    @pytest.mark.parametrize("rate", TEN_A_MINUTE)
    def test_nobody_waits_for_an_hour_by_which_the_clock_was_put_back(self, limiter: Limiter, rate: str) -> None:
        self.at(3600)
        assert limiter.check(Rate.parse(rate), "u", cost=10)
        self.at(0)
        assert limiter.check(Rate.parse(rate), "u", cost=10)

    def test_two_bans_have_nothing_in_common(self, limiter: Limiter) -> None:
        probe, login = Rule("probe", "2/m anchored", ban_for=300), Rule("login", "2/m anchored", ban_for=300)
        for rule in (probe, login, probe, login):
            assert limiter.check(rule, "u")
        for second in range(10, 310, 10):
            self.at(second)
            banned = limiter.check(probe, "u")
            assert (banned.banned, *figures(banned)) == (True, False, 0, 310 - second)
        assert limiter.peek(login, "u").remaining == 2
        self.at(310)
        assert limiter.check(probe, "u").remaining == 1

    def test_a_ban_lifted_by_hand_takes_the_count_with_it(self, limiter: Limiter) -> None:
        rule = Rule("login", "2/m", ban_for=300)
        assert [bool(limiter.check(rule, "u")) for _ in range(3)] == [True, True, False]
        limiter.clear(rule, "u")
        assert limiter.check(rule, "u").remaining == 1

    def test_bans_grow_until_they_are_forgotten(self, limiter: Limiter) -> None:
        rule, now, waits = Rule("login", "1/s", ban_for=(10, 60, 300)), 0.0, []
        for _ in range(4):
            self.at(now)
            assert limiter.check(rule, "u")
            wait = limiter.check(rule, "u").retry_after
            assert wait is not None
            waits.append(wait)
            now += wait
        assert waits == [10, 60, 300, 300]
        for later, wait in ((299.999999, 300), (600, 10)):
            self.at(now + later)
            assert [bool(limiter.check(rule, "u")) for _ in range(2)] == [True, False]
            assert limiter.peek(rule, "u").retry_after == wait
            now += later + wait

    def test_charges_on_one_budget_add_up(self, limiter: Limiter) -> None:
        twice = [Call(Rate.parse("5/m"), "u", "g", 3)] * 2
        assert figures(limiter.check_many(twice)) == (False, 5, None)
        assert limiter.check(Rate.parse("5/m"), "u", group="g", cost=2)
        assert figures(limiter.check_many([call._replace(cost=2) for call in twice])) == (False, 3, 60.0)

    def test_a_rule_in_shadow_takes_all_its_rates_or_none(self, limiter: Limiter) -> None:
        rule = Rule("r", "1/s; 9/m", action="log")
        assert [limiter.check(rule, "u").shadow_denials for _ in range(3)] == [(), ("r",), ("r",)]
        assert limiter.peek(Rule("r", "1/s; 9/m"), "u").parts[1].outcome.remaining == 8


def figures(decision: Decision) -> tuple[bool, int, float | None]:
    return decision.allowed, decision.remaining, decision.retry_after


class TestReference(Scenarios):
    @pytest.fixture
    def store(self) -> Model:
        return Model()


class TestMemory(Scenarios):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


class TestRedis(Scenarios):
    @pytest.fixture
    def store(self, redis_url: str) -> Iterator[RedisStore]:
        store = RedisStore(redis_url, timeout=10, server_time=False)
        yield store
        store.close()
