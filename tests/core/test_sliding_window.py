from __future__ import annotations

import pytest

from ratelimit import Limiter, MemoryStore, Rate
from ratelimit.algorithms.sliding_window import current, outcome, passes, settle
from ratelimit.outcome import NEVER, Outcome
from ratelimit.testing import FakeClock

SECOND = 1_000_000
HUNDRED = Rate.parse("100/10s sliding")
START = 1_800_000_000 * SECOND
NUMBER = START // (10 * SECOND)


def verdicts(limiter: Limiter, clock: FakeClock, rate: Rate, pauses: list[float]) -> list[bool]:
    """Whether a call passes after each of these pauses."""
    found = []
    for pause in pauses:
        clock.advance(pause)
        found.append(bool(limiter.check(rate, "u")))
    return found


def test_a_limit_of_one(limiter: Limiter, fake_clock: FakeClock) -> None:
    rate = Rate.parse("1/10s sliding")
    assert verdicts(limiter, fake_clock, rate, [0, 5, 5, 9.999999, 0.000001]) == [True, False, False, False, True]


def test_the_last_window_counts_by_the_share_of_it_that_is_in_view(limiter: Limiter, fake_clock: FakeClock) -> None:
    limiter.check(HUNDRED, "u", cost=50)
    fake_clock.advance(11)
    assert limiter.check(HUNDRED, "u", cost=10).remaining == 45
    assert not limiter.check(HUNDRED, "u", cost=46)
    assert limiter.check(HUNDRED, "u", cost=3).remaining == 42
    assert sum(bool(limiter.check(HUNDRED, "u")) for _ in range(50)) == 42
    fake_clock.advance(4.5)
    assert limiter.peek(HUNDRED, "u").remaining == 22


def test_retrying_keeps_nobody_out(limiter: Limiter, fake_clock: FakeClock) -> None:
    rate = Rate.parse("5/10s sliding")
    assert verdicts(limiter, fake_clock, rate, [0] * 5) == [True] * 5
    assert verdicts(limiter, fake_clock, rate, [1] * 12) == [False] * 11 + [True]


def test_calls_below_the_rate_are_never_denied_and_hold_one_key(fake_clock: FakeClock) -> None:
    store = MemoryStore()
    limiter = Limiter(store, clock=fake_clock)
    rate = Rate.parse("5/10s sliding")
    assert all(verdicts(limiter, fake_clock, rate, [2.5] * 1000))
    assert len(store) == 1


def test_the_wait_is_exact(limiter: Limiter, fake_clock: FakeClock) -> None:
    rate = Rate.parse("7/10s sliding")
    for moment in (0, 3, 8.2, 11.7, 1.1, 0.3):
        fake_clock.advance(moment)
        while limiter.check(rate, "u"):
            pass
        for cost in (1, 2, 5, 7):
            wait = limiter.peek(rate, "u", cost=cost).retry_after
            assert wait
            fake_clock.advance(wait - 0.000001)
            assert not limiter.peek(rate, "u", cost=cost)
            fake_clock.advance(0.000001)
            assert limiter.peek(rate, "u", cost=cost)
            fake_clock.advance(-wait)


@pytest.mark.parametrize(
    ("state", "at", "cost", "charged", "expected"),
    [
        ((NUMBER, 0, 0), 1, 1, True, Outcome(True, 100, 99, 0, 19 * SECOND)),
        ((NUMBER, 0, 0), 1, 1, False, Outcome(True, 100, 100, 0, 0)),
        ((NUMBER, 0, 50), 1, 0, True, Outcome(True, 100, 55, 0, 9 * SECOND)),
        ((NUMBER, 100, 0), 1, 1, False, Outcome(False, 100, 0, 9 * SECOND + 100_000, 19 * SECOND)),
        ((NUMBER, 100, 0), 1, 100, False, Outcome(False, 100, 0, 19 * SECOND, 19 * SECOND)),
        ((NUMBER, 0, 100), 1, 50, False, Outcome(False, 100, 10, 4 * SECOND, 9 * SECOND)),
        ((NUMBER, 0, 0), 1, 101, False, Outcome(False, 100, 100, NEVER, 0)),
        ((NUMBER, 120, 0), 1, 0, True, Outcome(True, 100, 0, 0, 19 * SECOND)),
    ],
)
def test_an_outcome(state: tuple[int, int, int], at: int, cost: int, charged: bool, expected: Outcome) -> None:
    assert outcome(state, HUNDRED, cost, START + at * SECOND, charged) == expected


def test_a_limit_lowered_below_what_is_in_use_waits_for_enough_to_go_out_of_view() -> None:
    found = outcome((NUMBER, 100, 0), Rate.parse("50/10s sliding"), 1, START, False)
    assert (found.allowed, found.remaining, found.retry_after_us) == (False, 0, 15 * SECOND + 100_000)


@pytest.mark.parametrize(
    ("state", "at", "expected"),
    [
        (None, 0, (NUMBER, 0, 0)),
        ((NUMBER, 5, 3), 0, (NUMBER, 5, 3)),
        ((NUMBER - 1, 5, 3), 0, (NUMBER, 0, 5)),
        ((NUMBER - 2, 5, 3), 0, (NUMBER, 0, 0)),
        ((NUMBER + 1, 5, 3), 0, (NUMBER + 1, 5, 3)),
        ((NUMBER + 6, 5, 3), 0, (NUMBER + 6, 5, 3)),
        ((NUMBER + 7, 5, 3), 0, (NUMBER, 0, 0)),
    ],
)
def test_a_state_as_it_stands_later_or_before_a_clock_that_stepped_back(
    state: tuple[int, int, int] | None, at: int, expected: tuple[int, int, int]
) -> None:
    assert current(state, HUNDRED, START + at * SECOND) == expected


@pytest.mark.parametrize(
    ("cost", "taken", "expected"),
    [
        (3, 0, (NUMBER, 8, 4)),
        (-3, 0, (NUMBER, 2, 4)),
        (-9, 0, (NUMBER, 0, 4)),
        (3, -10, (NUMBER, 5, 7)),
        (-9, -10, (NUMBER, 5, 0)),
        (3, -20, (NUMBER, 5, 4)),
        (3, 10, (NUMBER, 8, 4)),
    ],
)
def test_settling_changes_the_window_that_was_charged(cost: int, taken: int, expected: tuple[int, int, int]) -> None:
    assert settle((NUMBER, 5, 4), HUNDRED, cost, START + taken * SECOND) == expected


def test_while_the_clock_is_behind_the_last_window_counts_in_full() -> None:
    state = (NUMBER + 1, 0, 100)
    assert not passes(state, HUNDRED, 1, START)
    assert not passes(state, HUNDRED, 1, START + 10 * SECOND)
    assert passes(state, HUNDRED, 1, START + 10 * SECOND + 100_000)


@pytest.mark.parametrize("cost", [0, 1])
def test_a_limit_of_zero_never_passes(cost: int) -> None:
    assert outcome((NUMBER, 0, 0), Rate.parse("0/m sliding"), cost, START, False) == Outcome(False, 0, 0, NEVER, 0)
