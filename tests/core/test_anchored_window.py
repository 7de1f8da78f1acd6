from __future__ import annotations

import pytest

from ratelimit import Limiter, Rate
from ratelimit.algorithms.anchored_window import current, lifetime_us, outcome, settle
from ratelimit.outcome import NEVER, Outcome
from ratelimit.testing import FakeClock

SECOND = 1_000_000
THREE = Rate.parse("3/10s anchored")
NOW = 1_800_000_003 * SECOND


def test_a_window_begins_with_the_first_call_and_no_other_moves_it(limiter: Limiter, fake_clock: FakeClock) -> None:
    fake_clock.advance(7)
    first = limiter.check(THREE, "u")
    assert (first.remaining, first.reset_after) == (2, 10.0)
    fake_clock.advance(6)
    assert [limiter.check(THREE, "u").remaining for _ in range(2)] == [1, 0]
    waits = []
    for _ in range(4):
        waits.append(limiter.check(THREE, "u").retry_after)
        fake_clock.advance(1)
    assert waits == [4.0, 3.0, 2.0, 1.0]
    assert limiter.check(THREE, "u").reset_after == 10.0


def test_denied_a_microsecond_before_its_end_and_allowed_at_it(limiter: Limiter, fake_clock: FakeClock) -> None:
    fake_clock.advance(3.3)
    limiter.check(THREE, "u", cost=3)
    fake_clock.advance(9.999999)
    assert limiter.check(THREE, "u").retry_after == 0.000001
    fake_clock.advance(0.000001)
    assert limiter.check(THREE, "u").remaining == 2


def test_looks_denials_and_costs_of_zero_begin_none(limiter: Limiter, fake_clock: FakeClock) -> None:
    limiter.peek(THREE, "u")
    limiter.check(THREE, "u", cost=4)
    limiter.check(THREE, "u", cost=0)
    fake_clock.advance(5)
    assert limiter.check(THREE, "u").reset_after == 10.0


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, (NOW, 0)),
        ((NOW - 9_999_999, 2), (NOW - 9_999_999, 2)),
        ((NOW - 10_000_000, 2), (NOW, 0)),
        ((NOW + 60_000_000, 2), (NOW + 60_000_000, 2)),
        ((NOW + 60_000_001, 2), (NOW, 0)),
    ],
)
def test_a_state_as_it_stands(state: tuple[int, int] | None, expected: tuple[int, int]) -> None:
    assert current(state, THREE, NOW) == expected


@pytest.mark.parametrize(
    ("used", "cost", "charged", "expected"),
    [
        (0, 1, True, Outcome(True, 3, 2, 0, 6 * SECOND)),
        (0, 1, False, Outcome(True, 3, 3, 0, 0)),
        (2, 2, False, Outcome(False, 3, 1, 6 * SECOND, 6 * SECOND)),
        (0, 4, False, Outcome(False, 3, 3, NEVER, 0)),
        (5, 0, True, Outcome(True, 3, 0, 0, 6 * SECOND)),
    ],
)
def test_an_outcome_four_seconds_into_a_window(used: int, cost: int, charged: bool, expected: Outcome) -> None:
    state = (NOW - 4 * SECOND, used)
    assert outcome(state, THREE, cost, NOW, charged) == expected
    assert lifetime_us(state, THREE, NOW) == 6 * SECOND


@pytest.mark.parametrize(
    ("cost", "taken_us", "used"),
    [(2, NOW, 4), (-1, NOW, 1), (-5, NOW, 0), (2, NOW - 4 * SECOND, 4), (2, NOW - 5 * SECOND, 2)],
)
def test_settling_changes_the_window_that_was_charged_while_it_lasts(cost: int, taken_us: int, used: int) -> None:
    assert settle((NOW - 4 * SECOND, 2), THREE, cost, taken_us) == (NOW - 4 * SECOND, used)


@pytest.mark.parametrize("cost", [0, 1])
def test_a_limit_of_zero_never_passes(cost: int) -> None:
    assert outcome((NOW, 0), Rate.parse("0/m anchored"), cost, NOW, False) == Outcome(False, 0, 0, NEVER, 0)
