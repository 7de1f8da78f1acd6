"""What is found out once holds for every later check, until something that it follows from changes."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from ratelimit import Category, ConfigurationError, Identity, Limiter, MemoryStore, Policy, Rate, RateLimits, Rule
from ratelimit import settings as settings_module
from ratelimit.plan import Call
from ratelimit.prepared import MAX_PREPARED, prepare
from ratelimit.settings import Settings, override
from ratelimit.testing import FakeClock

ANN = Identity("ann", "203.0.113.7", token="secret")


def prepared(limiter: Limiter, rule: Any, group: str | None = None) -> bool:
    """Whether checks of `rule` go the short way."""
    return prepare(rule, group, limiter.settings, limiter.store, limiter._planner, {}) is not None


@pytest.fixture
def limiter(fake_clock: FakeClock) -> Limiter:
    return Limiter(MemoryStore(), clock=fake_clock)


@pytest.mark.parametrize(
    ("rule", "plain"),
    [
        ("AI_QUERY", True),
        (RateLimits.AI_QUERY, True),
        (Rate.parse("5/m"), True),
        (Rate.parse("5/m burst 9"), True),
        (Rate.parse("5/m; 9/h"), True),
        (Rule("r", "5/m"), True),
        (Rule("r", "AI_QUERY", tiered=True), True),
        (Rule("r", "5/m", by="token"), True),
        (Rule("r", "5/m", on_outage="closed"), True),
        (Rule("r", "5/m", by="global"), True),
        (Rule("r", "5/m", by="device"), False),
        (Rule("r", "5/m", by=("ip", "user")), True),
        (Rule("r", "5/m", by=lambda identity: "x"), True),
        (Rule("r", lambda identity: "5/m"), False),
        (Rule("r", "5/m", match={"path": "/"}), False),
        (Rule("r", "5/m", cost=2), True),
        (Rule("r", "5/m", action="log"), False),
        (Rule("r", action="skip"), False),
        (Rule("r", "5/m", ban_for=60), False),
        (Rule("r", "5/m", count_distinct="account"), False),
        (Policy(Rule("r", "5/m")), True),
        (Policy(Rule("r", "5/m"), Rule("s", "5/m")), True),
        (Policy(Rule("r", "5/m", cost=2)), True),
    ],
)
def test_what_no_call_decides_is_prepared_and_the_rest_is_not(limiter: Limiter, rule: Any, plain: bool) -> None:
    assert prepared(limiter, rule) == prepared(limiter, rule, None if isinstance(rule, Policy) else "g") == plain


@pytest.mark.parametrize("by", ["user_or_ip", "user", "ip", "token_or_ip", "token"])
def test_a_rule_counts_for_the_same_caller_either_way(limiter: Limiter, by: str) -> None:
    rule = Rule("r", "5/m", by=by)
    assert limiter.check(rule, ANN).remaining == 4
    assert limiter.peek(rule, ANN).remaining == 4
    assert limiter.check(Policy(rule), ANN).remaining == 3
    assert limiter.check_many([Call(rule, ANN)]).remaining == 2
    assert limiter.check(rule, ANN).key == limiter.peek(rule, ANN).key


def test_a_changed_rate_is_seen_at_once(fake_clock: FakeClock) -> None:
    limiter = Limiter(MemoryStore(), clock=fake_clock)
    assert limiter.check("AI_QUERY", "u").limit == 20
    with override(overrides={"AI_QUERY": "7/m"}):
        assert limiter.check("AI_QUERY", "u").limit == 7
        with override(key_prefix="other"):
            assert limiter.check("AI_QUERY", "u").remaining == 6
        with override(disable=True):
            assert [limiter.check("AI_QUERY", "u").allowed for _ in range(50)] == [True] * 50
    assert limiter.check("AI_QUERY", "u").limit == 20


def test_a_store_that_the_settings_name_is_taken_at_once(fake_clock: FakeClock) -> None:
    limiter = Limiter(clock=fake_clock)
    assert [limiter.check("EXPORT", "u").remaining for _ in range(2)] == [4, 3]
    with override(store="memory://?max_keys=7"):
        assert limiter.check("EXPORT", "u").remaining == 4
    assert limiter.check("EXPORT", "u").remaining == 2


def test_limiters_with_settings_of_their_own_keep_them(fake_clock: FakeClock) -> None:
    limiter = Limiter(MemoryStore(), clock=fake_clock, settings=Settings(overrides={"EXPORT": "9/h"}))
    with override(overrides={"EXPORT": "1/h"}):
        assert [limiter.check("EXPORT", "u").remaining for _ in range(3)] == [8, 7, 6]


def test_a_limiter_is_let_go_although_settings_know_it() -> None:
    gc.collect()
    before = len(settings_module._watches)
    Limiter(MemoryStore())
    gc.collect()
    assert len(settings_module._watches) == before


def test_a_name_that_is_no_text_of_its_own_means_the_same(limiter: Limiter) -> None:
    assert limiter.check("".join(["AI_", "QUERY"]), "u").remaining == 19
    assert limiter.check("AI_QUERY", "u").remaining == 18
    assert limiter.check(RateLimits.AI_QUERY, "u").remaining == 17
    assert limiter.check(Category("AI_QUERY", Rate.parse("20/m")), "u").remaining == 16


def test_rates_made_for_each_call_count_together_and_do_not_pile_up(limiter: Limiter) -> None:
    left = [limiter.check(Rate(5_000, 60), "u").remaining for _ in range(MAX_PREPARED * 2)]
    assert left == list(range(4_999, 4_999 - len(left), -1))
    assert len(limiter.shelf.known) <= MAX_PREPARED


def test_groups_made_for_each_call_do_not_pile_up(limiter: Limiter) -> None:
    for number in range(MAX_PREPARED * 2):
        assert limiter.check(Rate(5, 60), "u", group=f"room:{number}").remaining == 4
    assert len(limiter.shelf.known) <= MAX_PREPARED


def test_many_multipliers_do_not_pile_up(fake_clock: FakeClock) -> None:
    scores = iter(range(1, 2_000))
    limiter = Limiter(MemoryStore(), clock=fake_clock, multiplier=lambda identity: next(scores) / 100)
    assert [limiter.check("READ_LIGHT", Identity("u")).limit for _ in range(600)] == [
        200 * score // 100 for score in range(1, 601)
    ]


@pytest.mark.parametrize("identity", [None, 42, b"u", object()])
def test_what_is_no_caller_is_an_error_on_every_way(limiter: Limiter, identity: Any) -> None:
    for rule in ("AI_QUERY", Policy(Rule("r", "5/m"), Rule("s", "5/m"))):
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="neither an Identity nor a text"):
                limiter.check(rule, identity)
            with pytest.raises(ConfigurationError, match="neither an Identity nor a text"):
                asyncio.run(limiter.acheck(rule, identity))


@pytest.mark.parametrize("cost", [True, -1, 1.0, "1", None, 10**12 + 1])
def test_what_is_no_cost_is_an_error_on_every_way(limiter: Limiter, cost: Any) -> None:
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="cost"):
            limiter.check("AI_QUERY", "u", cost=cost)
        with pytest.raises(ConfigurationError, match="cost"):
            asyncio.run(limiter.acheck("AI_QUERY", "u", cost=cost))


def test_a_caller_may_be_a_text_or_an_identity_of_a_kind_of_its_own(limiter: Limiter) -> None:
    class Name(str):
        __slots__ = ()

    class Member(Identity):
        __slots__ = ()

    assert limiter.check("AI_QUERY", Name("user:42")).remaining == 19
    assert limiter.check("AI_QUERY", "user:42").remaining == 18
    assert limiter.check("AI_QUERY", Member("42")).remaining == 37
