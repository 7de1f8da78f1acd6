from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import Limiter, Rate, RateLimitExceeded
from ratelimit.decision import Decision, Part, decided, stricter, together
from ratelimit.outcome import NEVER, Outcome

WAITS = st.integers(1, 10**15) | st.just(NEVER)
OUTCOMES = st.one_of(
    st.builds(Outcome, st.just(True), st.just(10), st.integers(0, 10), st.just(0), st.integers(0, 10**9)),
    st.builds(Outcome, st.just(False), st.just(10), st.integers(0, 10), WAITS, st.integers(0, 10**9)),
)


def merged(*outcomes: Outcome, degraded: bool = False, shadow: tuple[int, ...] = ()) -> Decision:
    """A decision on rules r0, r1, …, of which those with a number in `shadow` are not enforced."""
    parts = [Part(f"r{n}", Rate(o.limit, 60), o, f"caller{n}", n not in shadow) for n, o in enumerate(outcomes)]
    return decided(parts, degraded)


def allowed(remaining: int) -> Outcome:
    return Outcome(True, 10, remaining, 0, 60_000_000)


def denied(wait_us: int) -> Outcome:
    return Outcome(False, 10, 0, wait_us, 60_000_000)


def test_an_allowed_decision() -> None:
    decision = merged(allowed(7))
    assert decision
    assert decision.allowed is bool(decision) is True
    assert (decision.limit, decision.remaining, decision.retry_after, decision.retry_after_seconds) == (10, 7, 0.0, 0)
    assert (decision.reset_after, decision.rule, decision.key, decision.rate) == (60.0, "r0", "caller0", Rate(10, 60))
    assert (decision.banned, decision.degraded) == (False, False)
    assert repr(decision) == "<Decision allowed r0 caller0 7/10 retry_after=0.0>"


def test_a_denied_decision() -> None:
    decision = merged(denied(1_500_000), degraded=True)
    assert not decision
    assert (decision.retry_after, decision.retry_after_seconds, decision.degraded) == (1.5, 2, True)
    assert decision.describe() == "Max 10 requests per minute"
    assert decision.exceeded_message() == "Limit exceeded: Max 10 requests per minute. Please try again later."
    assert repr(decision) == "<Decision denied r0 caller0 0/10 retry_after=1.5>"


@pytest.mark.parametrize(
    ("outcomes", "binding"),
    [
        ([allowed(3), allowed(2), allowed(5)], 1),
        ([allowed(3), allowed(3)], 0),
        ([allowed(0), denied(1)], 1),
        ([denied(3_000_000), denied(50_000_000)], 1),
        ([denied(50_000_000), denied(3_000_000)], 0),
        ([denied(50_000_000), denied(NEVER), denied(7_000_000)], 1),
        ([denied(5), denied(5)], 0),
    ],
)
def test_the_strictest_rate_gives_the_figures(outcomes: list[Outcome], binding: int) -> None:
    decision = merged(*outcomes)
    assert (decision.rule, decision.key) == (f"r{binding}", f"caller{binding}")
    assert (decision.remaining, decision.allowed) == (outcomes[binding].remaining, outcomes[binding].allowed)


@pytest.mark.parametrize(
    ("outcomes", "shadow", "binding"),
    [
        ([allowed(3), denied(5)], (1,), 0),
        ([denied(5), allowed(3), allowed(2)], (0,), 2),
        ([denied(NEVER), denied(5)], (0,), 1),
        ([denied(5), allowed(0), allowed(3)], (0, 1), 2),
        ([allowed(3), allowed(2)], (0, 1), 1),
    ],
)
def test_what_counts_in_shadow_gives_no_figures_beside_what_is_enforced(
    outcomes: list[Outcome], shadow: tuple[int, ...], binding: int
) -> None:
    decision = merged(*outcomes, shadow=shadow)
    assert decision.rule == f"r{binding}"
    assert decision.allowed is outcomes[binding].allowed
    assert decision.shadow_denials == tuple(f"r{n}" for n in shadow if not outcomes[n].allowed)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (merged(allowed(2)), merged(allowed(3))),
        (merged(denied(5)), merged(allowed(0))),
        (merged(denied(NEVER)), merged(denied(5))),
        (merged(allowed(3)), merged(denied(5), shadow=(0,))),
    ],
)
def test_the_stricter_of_two_decisions(one: Decision, other: Decision) -> None:
    assert stricter(one, other) is stricter(other, one) is one


def test_of_two_decisions_that_are_as_strict_the_first() -> None:
    one, other = merged(allowed(3)), merged(allowed(3))
    assert stricter(one, other) is one


def test_several_decisions_together_are_as_strict_as_the_strictest() -> None:
    one, other = Part("a", Rate(10, 60), allowed(3), "user:1"), Part("b", Rate(10, 60), allowed(2), "user:1")
    decision = together([decided([one]), decided([other], degraded=True)])
    assert (decision.parts, decision.rule, decision.degraded) == ([one, other], "b", True)
    assert not together([decided([one]), decided([other])]).degraded


@pytest.mark.parametrize(
    ("outcomes", "enforced", "told"),
    [
        ([allowed(3), allowed(2)], True, 1),
        ([allowed(0), allowed(9)], True, 1),  # a window ended in between
        ([allowed(3), denied(5)], True, 1),
        ([denied(5), allowed(3)], True, 0),
        ([denied(5), denied(9)], True, 1),
        ([denied(5), allowed(3)], False, 1),
    ],
)
def test_a_rate_that_was_asked_twice_is_told_once(outcomes: list[Outcome], enforced: bool, told: int) -> None:
    parts = [Part("r", Rate(10, 60), outcome, "user:1", enforced) for outcome in outcomes]
    assert together([decided([part]) for part in parts]).parts == [parts[told]]


@pytest.mark.parametrize("other", [("s", Rate(10, 60), "u"), ("r", Rate(10, 61), "u"), ("r", Rate(10, 60), "v")])
def test_rates_of_other_rules_windows_and_callers_are_told_beside_it(other: tuple[str, Rate, str]) -> None:
    rule, rate, key = other
    parts = [Part("r", Rate(10, 60), allowed(3), "u"), Part(rule, rate, allowed(3), key)]
    assert together([decided([part]) for part in parts]).parts == parts


def test_rules_of_one_name_are_two_if_one_of_them_only_counts() -> None:
    refused, shadow = (Part("r", Rate(10, 60), denied(5), "u", enforced) for enforced in (True, False))
    decision = together([decided([refused]), decided([shadow])])
    assert (decision.parts, decision.allowed, decision.shadow_denials) == ([refused, shadow], False, ("r",))


def test_a_denial_in_shadow_alone_is_seen_and_denies_nothing() -> None:
    banned = Outcome(False, 10, 0, 300_000_000, 300_000_000, banned=True)
    decision = merged(banned, shadow=(0,))
    assert (decision.allowed, decision.banned, decision.retry_after, decision.retry_after_seconds) == (
        True,
        False,
        0.0,
        0,
    )
    assert (decision.rule, decision.remaining, decision.shadow_denials) == ("r0", 0, ("r0",))
    assert decision.headers("ietf") == decision.headers("x") == {}


def test_a_ban_is_told() -> None:
    decision = merged(Outcome(False, 10, 0, 300_000_000, 300_000_000, banned=True), allowed(3))
    assert (decision.allowed, decision.banned, decision.retry_after, decision.shadow_denials) == (
        False,
        True,
        300.0,
        (),
    )


@given(st.lists(OUTCOMES, min_size=1, max_size=6))
def test_one_denial_denies_and_no_wait_is_understated(outcomes: list[Outcome]) -> None:
    decision = merged(*outcomes)
    waits = [o.retry_after_us for o in outcomes if not o.allowed]
    assert decision.allowed is (not waits)
    if not waits:
        assert decision.remaining == min(o.remaining for o in outcomes)
        assert decision.retry_after == 0.0
    elif NEVER in waits:
        assert decision.retry_after is decision.retry_after_seconds is None
    else:
        assert decision.retry_after == max(waits) / 1_000_000


@given(st.integers(1, 10**15))
def test_waits_for_the_wire_round_up_to_at_least_one_second(wait_us: int) -> None:
    seconds: Any = merged(denied(wait_us)).retry_after_seconds
    assert (seconds - 1) * 1_000_000 < wait_us <= seconds * 1_000_000
    assert seconds >= 1


def test_a_call_that_nothing_limits_was_not_counted(limiter: Limiter) -> None:
    assert [limiter.unlimited("u").counted, limiter.peek(Rate.parse("5/m"), "u").counted] == [False, True]


def test_the_exception_holds_the_decision_and_survives_pickling(limiter: Limiter) -> None:
    error = RateLimitExceeded(limiter.check(Rate.parse("0/m"), "user:42"))
    assert str(error) == "Limit exceeded: Max 0 requests per minute. Please try again later."
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert (copy.decision.allowed, copy.decision.key) == (False, "user:42")
