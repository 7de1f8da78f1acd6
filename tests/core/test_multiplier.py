from __future__ import annotations

import logging
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import Identity, Limiter, MemoryStore, Policy, Rate, Rule
from ratelimit.multiplier import multiplied
from ratelimit.rates import MAX_LIMIT
from ratelimit.testing import FakeClock

ANN = Identity("42", "203.0.113.7")
TEN = Rate(10, 60)


def scaled(factor: Any, text: str = "10/m") -> str:
    return str(multiplied(Rate.parse(text), lambda identity: factor, ANN))


@pytest.mark.parametrize(
    ("factor", "text", "expected"),
    [
        (1, "10/m", "10/m"),
        (1.0, "10/m", "10/m"),
        (2, "10/m", "20/m"),
        (0.5, "10/m", "5/m"),
        (0.25, "10/m", "2/m"),
        (1 / 3, "99/m", "33/m"),
        (Fraction(1, 3), "99/m", "33/m"),
        (Decimal("1.1"), "10/m", "11/m"),
        (0.01, "10/m", "1/m"),
        (0.01, "1000/m", "10/m"),
        (100, "10/m", "1000/m"),
        (True, "10/m", "10/m"),
        (0.5, "0/m", "0/m"),
        (0.5, "60/m burst 120", "30/m burst 60"),
        (1.5, "10/s; 200/h", "15/s; 300/h"),
        (0.1, "5/m sliding", "1/m sliding"),
        (100, "1000000000000/m", "1000000000000/m"),
    ],
)
def test_a_rate_is_multiplied_and_rounded_down(
    caplog: pytest.LogCaptureFixture, factor: Any, text: str, expected: str
) -> None:
    assert scaled(factor, text) == expected
    assert caplog.records == []


@pytest.mark.parametrize(
    ("factor", "expected", "used"),
    [
        *((factor, "1000/m", "100.0") for factor in (100.5, 101, 1e9, 10**30)),
        *((factor, "1/m", "0.01") for factor in (0, 0.0, -1, -1e9, 0.001, Fraction(1, 200))),
    ],
)
def test_an_absurd_one_is_clamped_and_logged(
    caplog: pytest.LogCaptureFixture, factor: Any, expected: str, used: str
) -> None:
    assert scaled(factor) == expected
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, f"multiplier {factor!r} is absurd; using {used}")
    ]


@pytest.mark.parametrize("found", [None, "ten", float("nan"), float("inf"), -float("inf"), [], object()])
def test_what_is_no_number_counts_as_one_and_is_logged(caplog: pytest.LogCaptureFixture, found: Any) -> None:
    assert scaled(found) == "10/m"
    ((level, message),) = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert level == logging.ERROR
    assert message.startswith("multiplier failed, using 1: ")


def test_an_exception_counts_as_one_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken(identity: Identity) -> float:
        raise KeyError("score")

    assert multiplied(TEN, broken, ANN) is TEN
    assert caplog.messages == ["multiplier failed, using 1: KeyError: 'score'"]


@given(st.floats(), st.integers(1, MAX_LIMIT))
def test_no_factor_denies_everything_or_goes_beyond_a_hundredfold(factor: float, limit: int) -> None:
    found = multiplied(Rate(limit, 60), lambda identity: factor, ANN).limit
    assert max(1, limit // 100) <= found <= min(100 * limit, MAX_LIMIT)


class TestInALimiter:
    scores = {"42": 0.5, "43": 2}

    @pytest.fixture
    def limiter(self, fake_clock: FakeClock) -> Limiter:
        return Limiter(MemoryStore(), clock=fake_clock, multiplier=self.score)

    def score(self, identity: Identity) -> float:
        return self.scores.get(identity.user or "", 1)

    def test_categories_are_multiplied_after_their_tier(self, limiter: Limiter) -> None:
        assert [limiter.peek("AI_QUERY", Identity(user)).limit for user in ("42", "43", "44", None)] == [20, 80, 40, 20]

    def test_rules_are_multiplied_if_they_are_tiered(self, limiter: Limiter) -> None:
        plain, tiered = Rule("plain", "10/m"), Rule("tiered", "10/m", tiered=True)
        assert [limiter.peek(rule, Identity("42")).limit for rule in (plain, tiered, Policy(tiered))] == [10, 10, 10]
        assert [limiter.peek(rule, Identity("43")).limit for rule in (plain, tiered)] == [10, 40]
        assert [limiter.peek(rule, Identity("1", superuser=True)).limit for rule in (plain, tiered)] == [10, 100]
        assert limiter.peek(Rule("r", lambda identity: "7/m", tiered=True), Identity("43")).limit == 28

    def test_rates_and_callers_named_by_a_text_are_exact(self, limiter: Limiter) -> None:
        assert limiter.peek(TEN, Identity("42")).limit == 10
        assert limiter.peek("AI_QUERY", "user:42").limit == 20
        assert limiter.peek(Rule("r", "10/m", tiered=True), "user:42").limit == 10

    def test_a_score_that_changes_meets_the_same_count(self, limiter: Limiter, monkeypatch: pytest.MonkeyPatch) -> None:
        assert limiter.check("AI_QUERY", Identity("43"), cost=30).remaining == 50
        monkeypatch.setitem(self.scores, "43", 0.25)
        assert (
            limiter.peek("AI_QUERY", Identity("43")).limit,
            limiter.check("AI_QUERY", Identity("43")).remaining,
        ) == (
            10,
            0,
        )
        assert not limiter.check("AI_QUERY", Identity("43"))
