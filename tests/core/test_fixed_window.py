from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import Rate
from ratelimit.algorithms.fixed_window import current, lifetime_us, outcome, passes, settle, take
from ratelimit.outcome import NEVER, Outcome
from ratelimit.rates import MAX_LIMIT, MAX_WINDOW

MINUTE = 28_571_428 * 60_000_000
UNITS = st.integers(0, MAX_LIMIT)
RATES = st.builds(Rate, UNITS, st.integers(1, MAX_WINDOW))
NOW = st.integers(0, 2**53)


@pytest.mark.parametrize(
    ("used", "cost", "charged", "expected"),
    [
        (0, 1, True, Outcome(True, 10, 9, 0, 48_000_000)),
        (0, 1, False, Outcome(True, 10, 10, 0, 0)),
        (9, 1, True, Outcome(True, 10, 0, 0, 48_000_000)),
        (10, 1, False, Outcome(False, 10, 0, 48_000_000, 48_000_000)),
        (6, 5, False, Outcome(False, 10, 4, 48_000_000, 48_000_000)),
        (0, 11, False, Outcome(False, 10, 10, NEVER, 0)),
        (10, 0, True, Outcome(True, 10, 0, 0, 48_000_000)),
        (15, 0, True, Outcome(True, 10, 0, 0, 48_000_000)),
        (15, 1, False, Outcome(False, 10, 0, 48_000_000, 48_000_000)),
    ],
)
def test_an_outcome_twelve_seconds_into_a_minute(used: int, cost: int, charged: bool, expected: Outcome) -> None:
    assert outcome((used,), Rate(10, 60), cost, MINUTE + 12_000_000, charged) == expected


@pytest.mark.parametrize("cost", [0, 1, 5])
def test_a_limit_of_zero_never_passes(cost: int) -> None:
    assert outcome((0,), Rate(0, 60), cost, MINUTE, False) == Outcome(False, 0, 0, NEVER, 0)


@pytest.mark.parametrize(("into_us", "wait_us"), [(0, 60_000_000), (1, 59_999_999), (59_999_999, 1)])
def test_the_wait_ends_with_the_window(into_us: int, wait_us: int) -> None:
    assert outcome((10,), Rate(10, 60), 1, MINUTE + into_us, False).retry_after_us == wait_us


@given(UNITS, RATES, UNITS, NOW)
def test_figures_hold_together(used: int, rate: Rate, cost: int, now_us: int) -> None:
    found = outcome((used,), rate, cost, now_us, charged=passes((used,), rate, cost, now_us))
    assert 0 <= found.remaining <= found.limit == rate.limit
    assert 0 <= found.reset_after_us <= rate.window_us
    if found.allowed:
        assert found.retry_after_us == 0
        assert cost == 0 or found.remaining == rate.limit - used - cost
    elif cost <= rate.limit and rate.limit:
        assert 1 <= found.retry_after_us <= rate.window_us
        assert (now_us + found.retry_after_us) % rate.window_us == 0
    else:
        assert found.retry_after_us == NEVER


@given(RATES, NOW)
def test_state_outlives_its_window_for_nodes_that_are_behind(rate: Rate, now_us: int) -> None:
    end_us = (now_us // rate.window_us + 1) * rate.window_us
    assert lifetime_us((3,), rate, now_us) == end_us - now_us + min(rate.window_us, 60_000_000)


def test_a_caller_never_seen_has_used_nothing() -> None:
    assert current(None, Rate(10, 60), MINUTE) == (0,)
    assert current((7,), Rate(10, 60), MINUTE) == (7,)


@pytest.mark.parametrize(("used", "cost", "after"), [(3, 2, 5), (3, -2, 1), (3, -3, 0), (3, -4, 0), (9, 5, 14)])
def test_settling_takes_more_than_there_is_and_gives_back_no_more_than_was_taken(
    used: int, cost: int, after: int
) -> None:
    assert settle((used,), Rate(10, 60), cost, MINUTE) == take((used,), cost) == (after,)
