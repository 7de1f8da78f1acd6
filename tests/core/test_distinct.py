"""Rules on different values are in test_transaction.py; here is the arithmetic alone."""

from __future__ import annotations

import pytest

from ratelimit import Rate
from ratelimit.algorithms.distinct import current, outcome, passes, settle, take
from ratelimit.outcome import NEVER, Outcome

MINUTE = 28_571_428 * 60_000_000
THREE = Rate(3, 60)


def test_a_caller_never_seen_has_used_no_value() -> None:
    assert current(None, THREE, MINUTE) == (0, 0)
    assert current((2, 1), THREE, MINUTE) == (2, 1)


@pytest.mark.parametrize(
    ("state", "cost", "passing", "after"),
    [
        ((0, 0), 1, True, (1, 1)),
        ((2, 0), 1, True, (3, 1)),
        ((3, 0), 1, False, (4, 1)),
        ((3, 1), 1, True, (3, 1)),
        ((9, 1), 1, True, (9, 1)),
        ((3, 0), 0, True, (3, 0)),
    ],
)
def test_a_new_value_uses_a_unit_and_a_known_one_none(
    state: tuple[int, int], cost: int, passing: bool, after: tuple[int, int]
) -> None:
    assert passes(state, THREE, cost, MINUTE) is passing
    assert take(state, cost) == after


@pytest.mark.parametrize(
    ("state", "cost", "charged", "expected"),
    [
        ((0, 0), 1, True, Outcome(True, 3, 2, 0, 48_000_000)),
        ((0, 0), 1, False, Outcome(True, 3, 3, 0, 0)),
        ((3, 1), 1, True, Outcome(True, 3, 0, 0, 48_000_000)),
        ((3, 0), 1, False, Outcome(False, 3, 0, 48_000_000, 48_000_000)),
        ((3, 0), 0, False, Outcome(True, 3, 0, 0, 48_000_000)),
    ],
)
def test_an_outcome_twelve_seconds_into_a_minute(
    state: tuple[int, int], cost: int, charged: bool, expected: Outcome
) -> None:
    assert outcome(state, THREE, cost, MINUTE + 12_000_000, charged) == expected


@pytest.mark.parametrize("state", [(0, 0), (1, 1)])
def test_a_limit_of_zero_never_passes(state: tuple[int, int]) -> None:
    assert outcome(state, Rate(0, 60), 1, MINUTE, False)[:4] == (False, 0, 0, NEVER)


def test_there_is_no_cost_to_settle() -> None:
    assert settle((2, 1), THREE, -1, MINUTE) == (2, 1)
