"""Policies, and rules with several rates, that are prepared: they decide as the general way does, which `peek` goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ratelimit import ConfigurationError, Identity, Limiter, MemoryStore, Policy, Rate, RateLimits, Rule
from ratelimit.joint import PreparedJoint
from ratelimit.outcome import TAKE, Charge, Outcome
from ratelimit.prepared import prepare
from ratelimit.rates import MAX_LIMIT
from ratelimit.settings import override
from ratelimit.stores.base import Callers, Share, Taken
from ratelimit.testing import FakeClock

ANN = Identity("ann", "203.0.113.7", token="secret")
BOB = Identity("bob", "203.0.113.7")
KINDS = ("9/m", "9/h anchored", "9/h sliding", "9/h burst 9", "9/h leaky burst 9")
EVERY_KIND = Policy(*(Rule(f"r{number}", kind) for number, kind in enumerate(KINDS)))


class Watched(MemoryStore):
    """Tells how often charges went the general way."""

    general = 0

    def joint(self, shares: Sequence[Share], one_caller: bool) -> Any:
        return MemoryStore().joint(shares, one_caller)

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        self.general += 1
        return super().apply(charges, now_us, mode)


class Distant(MemoryStore):
    """Tells how often several rates were asked together, which is a trip."""

    trips = 0

    def joint(self, shares: Sequence[Share], one_caller: bool) -> Any:
        near: Any = super().joint(shares, one_caller)

        def take(callers: Callers, cost: int, now_us: int) -> Taken:
            self.trips += 1
            decision = near.decide(None, callers, cost, now_us)
            return decision.allowed, decision._found, decision._at_us

        return SimpleNamespace(take=take, each=near.each)


@pytest.fixture
def limiter(fake_clock: FakeClock) -> Limiter:
    return Limiter(MemoryStore(), clock=fake_clock)


def joint(limiter: Limiter, rule: Any, group: str | None = None) -> bool:
    return isinstance(prepare(rule, group, limiter.settings, limiter.store, limiter._planner, {}), PreparedJoint)


def left(decision: Any) -> list[int]:
    return [part.outcome.remaining for part in decision.parts]


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (EVERY_KIND, True),
        (Rate.parse("5/s; 9/m"), True),
        (Policy(Rule("r", "5/m"), Rule("s", "5/m", by="device")), False),
        (Policy(Rule("r", "5/m"), Rule("s", "5/m", action="log")), False),
        (Policy(Rule("r", "5/m"), Rule("s", "5/m", ban_for=5)), False),
        (Policy(Rule("r", "5/m"), Rule("s", "5/m", count_distinct="device")), False),
        (Policy(Rule("r", "5/m"), Rule("s", "5/m", match={"path": "/"})), False),
        (Policy(Rule("r", "5/m"), Rule("s", "5/m", cost=0)), False),
        (Policy(Rule("r", "5/m"), Rule("s", lambda caller: "5/m")), False),
    ],
)
def test_one_rule_that_the_call_decides_sends_all_of_them_the_general_way(
    limiter: Limiter, rule: Any, found: bool
) -> None:
    assert joint(limiter, rule) == found


def test_a_prepared_policy_does_not_go_the_general_way(fake_clock: FakeClock) -> None:
    store = Watched()
    limiter = Limiter(store, clock=fake_clock)
    assert left(limiter.check(EVERY_KIND, ANN)) == [8] * 5
    assert store.general == 0
    assert left(limiter.check(EVERY_KIND, ANN, cost=0)) == [9] * 5
    assert store.general == 1


def test_all_are_taken_or_none(limiter: Limiter, fake_clock: FakeClock) -> None:
    policy = Policy(*EVERY_KIND, Rule("low", "3/m", by="ip"))
    assert left(limiter.check(policy, ANN, cost=2)) == [7] * 5 + [1]
    refused = limiter.check(policy, BOB, cost=2)
    assert (refused.allowed, refused.rule, refused.key, refused.limit) == (False, "low", "ip:203.0.113.7", 3)
    assert (refused.retry_after, left(refused)) == (60.0, [9] * 5 + [1])
    assert [part.outcome.allowed for part in refused.parts] == [True] * 5 + [False]
    assert refused.parts == limiter.peek(policy, BOB, cost=2).parts
    assert left(limiter.peek(policy, ANN)) == [7] * 5 + [1]
    fake_clock.advance(60)
    assert limiter.check(policy, BOB, cost=2)


def test_counts_are_those_of_its_rules(limiter: Limiter) -> None:
    limiter.check(EVERY_KIND, ANN)
    assert [limiter.check(rule, ANN).remaining for rule in EVERY_KIND] == [7] * 5
    assert left(limiter.check(EVERY_KIND, ANN)) == [6] * 5
    limiter.clear(EVERY_KIND, ANN)
    assert left(limiter.check(EVERY_KIND, ANN)) == [8] * 5


@pytest.mark.parametrize("who", [ANN, BOB, Identity(ip="::1"), Identity(name="job"), "ann", "user:ann"])
@pytest.mark.parametrize(
    "bys",
    [
        ("user_or_ip", "user_or_ip"),
        ("user", "ip"),
        ("token", "token_or_ip"),
        ("global", "user"),
        ("global", "global"),
        (("ip", "user"), "ip"),
        (lambda caller: caller.user or "-", "user"),
    ],
)
def test_callers_are_those_of_the_general_way(limiter: Limiter, who: Any, bys: tuple[Any, Any]) -> None:
    policy = Policy(*(Rule(f"r{number}", "9/m; 20/h", by=by) for number, by in enumerate(bys)))
    assert joint(limiter, policy)
    found, expected = limiter.check(policy, who), limiter.peek(policy, who)
    assert [part.key for part in found.parts] == [part.key for part in expected.parts]
    assert found.parts == expected.parts
    assert found.key == expected.key


@pytest.mark.parametrize("who", [ANN, BOB, Identity(name="job"), "ann"])
@pytest.mark.parametrize("by", [("ip", "user"), lambda caller: caller.user or caller.name or "-", ("global", "token")])
def test_the_caller_of_a_single_rule_is_found_once(limiter: Limiter, who: Any, by: Any) -> None:
    rule = Rule("alone", "9/m; 1/h", by=by)
    assert joint(limiter, rule)
    found, expected = limiter.check(rule, who), limiter.peek(rule, who)
    assert [(part.key, part.outcome.remaining) for part in found.parts] == [
        (part.key, part.outcome.remaining) for part in expected.parts
    ]
    limiter.clear(rule, who)
    assert [bool(limiter.check(rule, who)) for _ in range(2)] == [True, False]


def test_callers_that_a_function_tells_apart_have_budgets_of_their_own(limiter: Limiter) -> None:
    rule = Rule("function", "1/m", by=lambda caller: caller.user or "nobody")
    assert joint(limiter, rule)
    assert [limiter.check(rule, who).key for who in (ANN, BOB, Identity())] == ["key:ann", "key:bob", "key:nobody"]
    assert [bool(limiter.check(rule, who)) for who in (ANN, BOB, Identity("new"))] == [False, False, True]


def test_costs_are_multiplied_by_each_rules_own(limiter: Limiter) -> None:
    policy = Policy(Rule("one", "9/m"), Rule("two", "9/m", cost=2))
    assert [left(limiter.check(policy, ANN, cost=cost)) for cost in (1, 3)] == [[8, 7], [5, 1]]
    assert left(limiter.check(Policy(Rule("three", "9/m", cost=3)), ANN)) == [6]
    refused = limiter.check(policy, ANN)
    assert (refused.rule, refused.retry_after) == ("two", 60.0)
    for ask in (limiter.check, limiter.peek):
        with pytest.raises(ConfigurationError, match=f"rule 'two': cost 2 times {MAX_LIMIT} is more than"):
            ask(policy, ANN, cost=MAX_LIMIT)


@pytest.mark.parametrize("multiplier", [None, lambda caller: 0.5 if caller.user == "ann" else 2])
def test_tiers_and_multipliers_scale_what_is_tiered(
    fake_clock: FakeClock, multiplier: Callable[[Identity], float] | None
) -> None:
    limiter = Limiter(MemoryStore(), clock=fake_clock, multiplier=multiplier)
    policy = Policy(Rule("tiered", "10/m; 20/h", tiered=True), Rule("not", "30/m"), Rule("category", "AI_QUERY"))
    for who in (ANN, BOB, Identity("root", superuser=True), Identity("c", capped=True), Identity(), "u", ANN):
        expected = [part.rate for part in limiter.peek(policy, who).parts]
        assert [part.rate for part in limiter.check(policy, who).parts] == expected
    assert joint(limiter, policy)
    assert [limiter.check(Rate.parse("3/s; 4/m"), ANN, group="g").limit for _ in range(2)] == [3, 3]


def test_many_multipliers_do_not_pile_up(fake_clock: FakeClock) -> None:
    scores = iter(range(1, 2_000))
    limiter = Limiter(MemoryStore(), clock=fake_clock, multiplier=lambda identity: next(scores) / 100)
    policy = Policy(Rule("a", "100/m", tiered=True), Rule("b", "900/m"))
    for _ in range(300):
        assert limiter.check(policy, ANN)
    assert len(limiter.shelf.known[id(policy)]._quotas) <= 256  # type: ignore[union-attr]


def test_tiers_of_an_applications_own_are_asked_in_each_check(fake_clock: FakeClock) -> None:
    limiter = Limiter(MemoryStore(), clock=fake_clock, tiers=lambda identity, rate: Rate(len(identity.user or ""), 60))
    policy = Policy(Rule("a", "100/m", tiered=True), Rule("b", "900/m"))
    assert not joint(limiter, policy)
    assert [limiter.check(policy, Identity(user)).limit for user in ("ann", "maria")] == [3, 5]


def test_changed_settings_are_seen_at_once(limiter: Limiter) -> None:
    policy = Policy(Rule("a", "AI_QUERY"), Rule("b", RateLimits.EXPORT))
    assert left(limiter.check(policy, ANN)) == [19, 4]
    with override(overrides={"EXPORT": "9/h"}):
        assert left(limiter.check(policy, ANN)) == [18, 7]
        with override(key_prefix="other"):
            assert left(limiter.check(policy, ANN)) == [19, 8]
        with override(disable=True):
            assert [limiter.check(policy, ANN).allowed for _ in range(50)] == [True] * 50
    with override(overrides={"EXPORT": "9/h; 10/d"}):
        assert left(limiter.check(policy, ANN)) == [17, 6, 9]
    assert left(limiter.check(policy, ANN)) == [16, 1]


def test_a_category_with_several_rates_counts_by_what_the_call_says(limiter: Limiter) -> None:
    with override(overrides={"EXPORT": "5/m; 9/h"}):
        for key, caller in (("ip", "ip:203.0.113.7"), ("user", "user:ann")):
            found = limiter.check("EXPORT", ANN, key=key)
            assert ([part.key for part in found.parts], left(found)) == ([caller] * 2, [9, 17])
        assert limiter.check("EXPORT", "job", group="g").parts == limiter.peek("EXPORT", "job", group="g").parts
        with pytest.raises(ConfigurationError, match="unknown key strategy"):
            limiter.check("EXPORT", ANN, key="email")


def test_a_group_is_for_one_rule(limiter: Limiter) -> None:
    assert limiter.check(Rule("r", "9/m; 20/h"), ANN, group="g").rule == "g"
    assert limiter.peek(Rule("r", "9/m; 20/h"), ANN, group="g").remaining == 8
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="its rules' counts would be mixed"):
            limiter.check(EVERY_KIND, ANN, group="g")


def test_a_store_is_asked_only_for_what_it_holds(fake_clock: FakeClock) -> None:
    class OnlyFixed(MemoryStore):
        holds = frozenset({"fixed"})

    limiter = Limiter(OnlyFixed(), clock=fake_clock)
    with pytest.raises(ConfigurationError, match="needs anchored"):
        limiter.check(EVERY_KIND, ANN)


def test_a_store_that_counts_in_a_way_of_its_own_is_asked_in_that_way(fake_clock: FakeClock) -> None:
    class Generous(MemoryStore):
        def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
            return [Outcome(True, 1_000, 999, 0, 0) for _ in charges]

    limiter = Limiter(Generous(), clock=fake_clock)
    assert not joint(limiter, EVERY_KIND)
    assert limiter.check(EVERY_KIND, ANN).limit == 1_000


def test_a_full_store_makes_room_between_the_rates_of_one_call(fake_clock: FakeClock) -> None:
    store = MemoryStore(max_keys=3)
    limiter = Limiter(store, clock=fake_clock)
    for number in range(50):
        assert limiter.check(EVERY_KIND, f"u{number}")
        fake_clock.advance(7)
    assert len(store) <= 3


@pytest.mark.parametrize("who", [ANN, "ann"])
@pytest.mark.parametrize("by", [("ip", "user"), "ip"])
def test_a_denial_is_forgotten_for_whom_it_was_known(who: Any, by: Any, fake_clock: FakeClock) -> None:
    store, rule = Distant(), Rule("alone", "9/m; 1/h", by=by)
    limiter = Limiter(store, clock=fake_clock)
    assert [bool(limiter.check(rule, who)) for _ in range(4)] == [True, False, False, False]
    assert store.trips == 2
    limiter.clear(rule, who)
    assert [bool(limiter.check(rule, who)) for _ in range(2)] == [True, False]


def test_a_higher_cost_than_was_denied_may_be_refused_by_another_rate(fake_clock: FakeClock) -> None:
    store, policy = Distant(), Policy(Rule("a", "1/m"), Rule("b", "9/m"))
    limiter = Limiter(store, clock=fake_clock)
    assert limiter.check(policy, "u")
    assert [limiter.check(policy, "u", cost=cost).retry_after for cost in (1, 1, 10)] == [60.0, 60.0, None]
    denied = limiter.check(policy, "u", cost=9)
    assert [part.outcome for part in denied.parts] == [part.outcome for part in limiter.peek(policy, "u", cost=9).parts]
    assert store.trips == 2


@pytest.mark.parametrize("who", [ANN, "ann"])
@pytest.mark.parametrize("by", [("ip", "user"), "ip"])
def test_who_passes_with_a_smaller_cost_is_told_what_is_left_then(who: Any, by: Any, fake_clock: FakeClock) -> None:
    store, rule = Distant(), Rule("r", "60/m burst 5; 99/h", by=by)
    limiter = Limiter(store, clock=fake_clock)
    assert limiter.check(rule, who, cost=3)
    assert [limiter.check(rule, who, cost=5).retry_after for _ in range(2)] == [3.0] * 2
    assert store.trips == 2
    assert limiter.check(rule, who, cost=2)
    assert [limiter.check(rule, who, cost=5).retry_after for _ in range(2)] == [5.0] * 2
    assert store.trips == 4


def test_in_memory_denials_are_not_remembered(limiter: Limiter) -> None:
    policy = Policy(Rule("a", "1/m"), Rule("b", "9/m"))
    assert [limiter.check(policy, ANN).allowed for _ in range(3)] == [True, False, False]
    limiter.store.clear([Charge("rl:a", "user:ann", Rate(1, 60), 1, "a")], limiter.now())
    assert limiter.check(policy, ANN)
    limiter.clear(policy, ANN)
    assert limiter.check(policy, ANN)
