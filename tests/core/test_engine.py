from __future__ import annotations

from typing import Any

import pytest

from ratelimit import (
    Call,
    ConfigurationError,
    Identity,
    Limiter,
    MemoryStore,
    Policy,
    Rate,
    RateLimits,
    Rule,
    ais_rate_limited,
    is_rate_limited,
)
from ratelimit.testing import FakeClock, isolated

THREE = Rate.parse("3/m")
USER = Identity("42", "203.0.113.7")


class OnlyFixed(MemoryStore):
    """A store that can hold fixed windows, and nothing else."""

    holds = frozenset({"fixed"})


class TestCheck:
    @pytest.mark.parametrize("rule", ["AI_ANALYSIS", RateLimits.AI_ANALYSIS, Rate.parse("5/m")])
    async def test_of_n_plus_one_calls_n_pass(self, limiter: Limiter, rule: Any) -> None:
        sync = [bool(limiter.check(rule, "sync")) for _ in range(6)]
        aio = [bool(await limiter.acheck(rule, "async")) for _ in range(6)]
        assert sync == aio == [True] * 5 + [False]

    def test_the_next_window_is_fresh(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        fake_clock.advance(59.999999)
        assert [bool(limiter.check(THREE, "u")) for _ in range(4)] == [True] * 3 + [False]
        fake_clock.advance(0.000001)
        assert [bool(limiter.check(THREE, "u")) for _ in range(4)] == [True] * 3 + [False]

    def test_a_category_is_one_budget_whoever_names_it(self, limiter: Limiter) -> None:
        limiter.check("AI_QUERY", USER, protocol="graphql")
        limiter.check(RateLimits.AI_QUERY, USER, protocol="mcp")
        assert limiter.peek("AI_QUERY", "user:42").remaining == 18
        assert limiter.peek("AI_QUERY", USER, group="elsewhere").remaining == 40

    def test_a_caller_is_counted_by_the_strategy(self, limiter: Limiter) -> None:
        keys = [limiter.check(THREE, USER, key=key).key for key in ("user_or_ip", "ip", "global")]
        assert keys == ["user:42", "ip:203.0.113.7", "global"]
        assert limiter.check(THREE, "anything at all").remaining == 2

    def test_costs(self, limiter: Limiter) -> None:
        rate = Rate.parse("10/m")
        never = limiter.check(rate, "u", cost=11)
        assert (never.allowed, never.remaining, never.retry_after) == (False, 10, None)
        seen = [(bool(d), d.remaining) for d in (limiter.check(rate, "u", cost=c) for c in (6, 5, 3, 2, 0, 1, 1))]
        assert seen == [(True, 4), (False, 4), (True, 1), (False, 1), (True, 1), (True, 0), (False, 0)]

    @pytest.mark.parametrize("cost", [-5, 1.5, True, "1", None])
    def test_a_bad_cost_is_an_error_and_counts_nothing(self, limiter: Limiter, cost: Any) -> None:
        with pytest.raises(ConfigurationError, match="cost"):
            limiter.check(THREE, "u", cost=cost)
        assert limiter.peek(THREE, "u").remaining == 3

    def test_zero_denies_the_first_call(self, limiter: Limiter) -> None:
        decision = limiter.check(Rate.parse("0/m"), "u")
        assert (decision.allowed, decision.remaining, decision.retry_after) == (False, 0, None)

    @pytest.mark.parametrize("rule", ["AI_QERY", "10/m", "", None, 10, ["AI_QUERY"]])
    async def test_a_rule_that_does_not_exist_is_an_error_and_not_unlimited(self, limiter: Limiter, rule: Any) -> None:
        for call in (limiter.check, limiter.peek, limiter.clear):
            if rule is not None or call != limiter.clear:
                with pytest.raises(ConfigurationError):
                    call(rule, "u")  # type: ignore[operator]
        with pytest.raises(ConfigurationError):
            await limiter.acheck(rule, "u")

    @pytest.mark.parametrize("text", ["100/m sliding", "60/m burst 120", "5/s; 60/m sliding"])
    def test_an_algorithm_that_the_store_lacks_is_an_error_that_names_both(self, text: str) -> None:
        limiter = Limiter(OnlyFixed(), clock=FakeClock())
        needed = "token_bucket" if "burst" in text else "sliding"
        said = rf"'default' with the rate '.*' needs {needed}; OnlyFixed holds fixed: change the rule, or count in memory or"
        for call in (limiter.check, limiter.peek, limiter.clear, limiter.reserve):
            with pytest.raises(ConfigurationError, match=said):
                call(Rate.parse(text), "u")  # type: ignore[operator]

    @pytest.mark.parametrize(
        ("rule", "needed"),
        [
            (Rule("r", "5/m", ban_for=60), "ban"),
            (Rule("r", "5/m", count_distinct="account"), "distinct"),
            (Rule("r", "5/m anchored", ban_for=60), "anchored, ban"),
            (Rule("r", "5/m leaky", action="log"), "leaky_bucket"),
            (Policy(Rule("a", "5/m"), Rule("r", "5/m", ban_for=60)), "ban"),
        ],
    )
    def test_a_rule_that_the_store_cannot_hold_is_an_error_that_names_it(self, rule: Any, needed: str) -> None:
        with pytest.raises(
            ConfigurationError, match=rf"^rule 'r' with the rate '.*' needs {needed}; OnlyFixed holds fixed"
        ):
            Limiter(OnlyFixed(), clock=FakeClock()).check(rule, "u")

    @pytest.mark.parametrize(
        "text", ["10/m", "10/m anchored", "10/m sliding", "10/m burst 10", "10/m leaky burst 10", "10/m; 90/h burst 10"]
    )
    def test_costs_are_the_same_whatever_the_window(self, limiter: Limiter, text: str) -> None:
        rate = Rate.parse(text)
        seen = [(bool(d), d.remaining) for d in (limiter.check(rate, "u", cost=c) for c in (5, 100, 5, 1, 0))]
        assert seen == [(True, 5), (False, 5), (True, 0), (False, 0), (True, 0)]
        never = limiter.check(rate, "v", cost=11)
        assert (never.allowed, never.remaining, never.retry_after) == (False, 10, None)
        seen = [(bool(d), d.remaining) for d in (limiter.check(rate, "w", cost=c) for c in (6, 3, 2))]
        assert seen == [(True, 4), (True, 1), (False, 1)]
        with pytest.raises(ConfigurationError, match="cost -5 is not a whole number"):
            limiter.check(rate, "w", cost=-5)
        assert limiter.peek(rate, "w").remaining == 1

    @pytest.mark.parametrize("mode", ["", " anchored", " sliding", " burst 5", " leaky", " leaky burst 5"])
    @pytest.mark.parametrize("cost", [0, 1])
    def test_zero_denies_the_first_call_whatever_the_window(self, limiter: Limiter, mode: str, cost: int) -> None:
        decision = limiter.check(Rate.parse(f"0/m{mode}"), "u", cost=cost)
        assert (decision.allowed, decision.remaining, decision.retry_after) == (False, 0, None)
        assert decision.headers() == {}


class TestPeek:
    async def test_sees_and_writes_nothing(self, limiter: Limiter) -> None:
        limiter.check(THREE, "u", cost=2)
        looks = [limiter.peek(THREE, "u"), await limiter.apeek(THREE, "u"), limiter.peek(THREE, "u", cost=2)]
        assert [(d.allowed, d.remaining) for d in looks] == [(True, 1), (True, 1), (False, 1)]
        assert looks[2].retry_after == 60.0
        assert limiter.check(THREE, "u").remaining == 0


class TestSeveralCalls:
    calls = (Call(Rate.parse("10/m"), "u", "wide", 2), Call(Rate.parse("3/m"), "v", "narrow", 2))

    async def test_all_are_taken_or_none(self, limiter: Limiter) -> None:
        assert limiter.check_many(self.calls).remaining == 1
        refused = await limiter.acheck_many(self.calls)
        assert (refused.allowed, refused.rule, refused.key, refused.retry_after) == (False, "narrow", "v", 60.0)
        assert limiter.peek(Rate.parse("10/m"), "u", group="wide").remaining == 8

    def test_two_rates_in_one_group_are_two_counters(self, limiter: Limiter) -> None:
        minute, hour = Rate.parse("5/m"), Rate.parse("9/h")
        limiter.check_many([Call(minute, "u", "g"), Call(hour, "u", "g")])
        assert [limiter.peek(rate, "u", group="g").remaining for rate in (minute, hour)] == [4, 8]

    def test_may_be_rules_and_policies_too(self, limiter: Limiter) -> None:
        policy = Policy(Rule("a", "5/m", by="ip"), Rule("b", "9/m", match={"path": "/b"}))
        calls = [
            Call(policy, USER, attributes={"path": "/b"}),
            Call("AI_QUERY", USER),
            Call(Rule("c", "3/m"), USER, "g", 2),
        ]
        decision = limiter.check_many(calls)
        assert [(part.rule, part.outcome.remaining) for part in decision.parts] == [
            *(("a", 4), ("b", 8), ("AI_QUERY", 39), ("g", 1))
        ]
        assert not limiter.check_many(calls)
        assert limiter.peek("AI_QUERY", USER).remaining == 39

    async def test_none_at_all_is_an_error_and_not_allowed(self, limiter: Limiter) -> None:
        with pytest.raises(ConfigurationError, match="nothing to check"):
            limiter.check_many([])
        with pytest.raises(ConfigurationError, match="nothing to check"):
            await limiter.acheck_many(())


class TestClear:
    async def test_forgets_one_caller_under_one_rule(self, limiter: Limiter) -> None:
        for rule, identity, group in ((THREE, "u", "g"), (THREE, "v", "g"), (THREE, "u", "h"), ("AI_QUERY", "u", None)):
            limiter.check(rule, identity, cost=3, group=group)
        limiter.clear(THREE, "u", group="g")
        await limiter.aclear("AI_QUERY", "u")
        left = [limiter.peek(THREE, who, group=group).remaining for who, group in (("u", "g"), ("v", "g"), ("u", "h"))]
        assert left == [3, 0, 0]
        assert limiter.peek("AI_QUERY", "u").remaining == 20

    def test_forgets_every_rate_of_a_rule(self, limiter: Limiter) -> None:
        both = Rate.parse("2/s; 3/h")
        limiter.check(both, "u", cost=2)
        limiter.clear(both, "u")
        assert [part.outcome.remaining for part in limiter.peek(both, "u").parts] == [2, 3]

    async def test_without_a_rule_forgets_the_caller_everywhere(self, limiter: Limiter) -> None:
        for clear in (limiter.clear, limiter.aclear):
            for who in (USER, "v"):
                limiter.check(THREE, who, cost=3)
                limiter.check("AI_QUERY", who, group="a:{b}")
            done = clear(None, USER)
            if done is not None:
                await done
            assert limiter.peek(THREE, "user:42").remaining == 3
            assert limiter.peek("AI_QUERY", USER, group="a:{b}").remaining == 40
            assert limiter.peek(THREE, "v").remaining == 0
            limiter.clear(None, "v")

    async def test_of_a_rule_that_counts_nothing_asks_no_store(self) -> None:
        class Untouchable(MemoryStore):
            def clear(self, *_: Any) -> None:
                raise AssertionError

        limiter = Limiter(Untouchable())
        for rule in (Rule("r", action="skip"), Rule("r", lambda identity: None)):
            limiter.clear(rule, USER)
            await limiter.aclear(rule, USER)

    def test_counts_by_the_strategy_too(self, limiter: Limiter) -> None:
        limiter.check(THREE, USER, key="ip")
        limiter.clear(None, USER)
        assert limiter.peek(THREE, USER, key="ip").remaining == 2
        limiter.clear(None, USER, key="ip")
        assert limiter.peek(THREE, USER, key="ip").remaining == 3


class TestDisabled:
    async def test_denies_nothing_and_stores_nothing(self) -> None:
        store = MemoryStore()
        with isolated(store, disable=True) as limiter:
            for rate in (THREE, Rate.parse("0/m")):
                assert all(limiter.check(rate, "u", cost=5) for _ in range(200))
                assert await limiter.acheck(rate, "u")
                assert limiter.peek(rate, "u")
            assert not is_rate_limited("g", "u", "0/m")
            assert not limiter.check(THREE, "u").degraded
        assert len(store) == 0

    def test_asks_no_store(self) -> None:
        class Untouchable(MemoryStore):
            def apply(self, *_: Any) -> Any:
                raise AssertionError

        with isolated(Untouchable(), disable=True) as limiter:
            assert limiter.check(THREE, "u").remaining == 3

    def test_still_refuses_what_does_not_exist(self) -> None:
        with isolated(disable=True) as limiter, pytest.raises(ConfigurationError):
            limiter.check("AI_QERY", "u")


class TestTheShortestForm:
    @pytest.mark.parametrize("rate", ["3/m", THREE, " 3 / MIN "])
    async def test_true_when_the_rate_is_used_up(self, limiter: Limiter, rate: Any) -> None:
        assert [is_rate_limited("g", "sync", rate) for _ in range(4)] == [False] * 3 + [True]
        assert [await ais_rate_limited("g", "async", rate) for _ in range(4)] == [False] * 3 + [True]

    async def test_without_increment_it_only_looks(self, limiter: Limiter) -> None:
        for _ in range(10):
            assert not is_rate_limited("g", "u", "1/m", increment=False)
            assert not await ais_rate_limited("g", "u", "1/m", increment=False)
        assert not is_rate_limited("g", "u", "1/m")
        assert is_rate_limited("g", "u", "1/m", increment=False)
        assert await ais_rate_limited("g", "u", "1/m", increment=False)

    def test_groups_and_keys_are_apart(self, limiter: Limiter) -> None:
        pairs = [("g", "u"), ("g", "v"), ("h", "u"), ("g:u", ""), ("g", ":u"), ("", "g:u")]
        assert [is_rate_limited(group, key, "1/m") for group, key in pairs] == [False] * len(pairs)
        assert [is_rate_limited(group, key, "1/m") for group, key in pairs] == [True] * len(pairs)

    def test_a_category_gives_its_rate_to_the_group(self, limiter: Limiter) -> None:
        assert [is_rate_limited("g", "u", "WRITE_HEAVY") for _ in range(6)] == [False] * 5 + [True]
        assert not is_rate_limited("h", "u", RateLimits.WRITE_HEAVY)
        assert limiter.peek("WRITE_HEAVY", "u").remaining == 5

    @pytest.mark.parametrize("rate", ["10/mm", "AI_QERY", "", "10", None, 10])
    async def test_nonsense_is_an_error_and_not_unlimited(self, limiter: Limiter, rate: Any) -> None:
        with pytest.raises(ConfigurationError):
            is_rate_limited("g", "u", rate)
        with pytest.raises(ConfigurationError):
            await ais_rate_limited("g", "u", rate)
