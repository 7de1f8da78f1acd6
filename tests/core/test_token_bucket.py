from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import Limiter, MemoryStore, Rate
from ratelimit.algorithms.token_bucket import current, lifetime_us, outcome, passes, settle, take
from ratelimit.outcome import NEVER, Outcome
from ratelimit.testing import FakeClock

SECOND = 1_000_000
NOW = 1_800_000_003 * SECOND
BUCKET = Rate.parse("60/m burst 10")


def allowed(limiter: Limiter, rate: Rate, times: int) -> int:
    return sum(bool(limiter.check(rate, "u")) for _ in range(times))


def test_a_burst_and_then_the_refill(limiter: Limiter, fake_clock: FakeClock) -> None:
    assert allowed(limiter, BUCKET, 15) == 10
    assert limiter.check(BUCKET, "u").retry_after == 1.0
    fake_clock.advance(0.999999)
    assert limiter.check(BUCKET, "u").retry_after == 0.000001
    fake_clock.advance(0.000001)
    assert allowed(limiter, BUCKET, 3) == 1
    fake_clock.advance(2.5)
    assert allowed(limiter, BUCKET, 3) == 2
    fake_clock.advance(0.5)
    assert allowed(limiter, BUCKET, 3) == 1
    fake_clock.advance(3600)
    assert allowed(limiter, BUCKET, 15) == 10


def test_figures(limiter: Limiter, fake_clock: FakeClock) -> None:
    first = limiter.check(BUCKET, "u", cost=4)
    assert (first.limit, first.remaining, first.reset_after) == (10, 6, 4.0)
    fake_clock.advance(1.25)
    look = limiter.peek(BUCKET, "u", cost=8)
    assert (look.allowed, look.remaining, look.retry_after, look.reset_after) == (False, 7, 0.75, 2.75)
    assert limiter.check(BUCKET, "u", cost=11).retry_after is None


def test_a_leaky_bucket_spaces_calls_evenly(limiter: Limiter, fake_clock: FakeClock) -> None:
    rate = Rate.parse("60/m leaky")
    assert [bool(limiter.check(rate, "u")) for _ in range(2)] == [True, False]
    passed = []
    for _ in range(8):
        fake_clock.advance(0.5)
        passed.append(bool(limiter.check(rate, "u")))
    assert passed == [False, True] * 4
    assert limiter.peek(rate, "u").limit == 1


def test_a_leaky_bucket_may_have_a_burst(limiter: Limiter, fake_clock: FakeClock) -> None:
    rate = Rate.parse("60/m leaky burst 3")
    assert allowed(limiter, rate, 5) == 3
    fake_clock.advance(2)
    assert allowed(limiter, rate, 5) == 2


def test_polling_does_not_eat_the_refill(limiter: Limiter, fake_clock: FakeClock) -> None:
    rate = Rate.parse("1/m burst 1")
    limiter.check(rate, "u")
    for _ in range(59):
        fake_clock.advance(1)
        assert not limiter.check(rate, "u")
    fake_clock.advance(1)
    assert limiter.check(rate, "u")


def test_fractions_of_a_unit_are_kept(limiter: Limiter, fake_clock: FakeClock) -> None:
    rate = Rate.parse("7/m burst 7")
    limiter.check(rate, "u", cost=7)
    for _ in range(7 * 60):
        fake_clock.advance(1 / 7 + 0.000001)
        limiter.check(rate, "u")
    fake_clock.advance(60)
    assert limiter.peek(rate, "u").remaining == 7


def test_a_clock_that_steps_back_neither_locks_out_nor_mints(fake_clock: FakeClock) -> None:
    limiter, rate = Limiter(MemoryStore(), clock=fake_clock), Rate.parse("1/s burst 5")
    fake_clock.set(100)
    assert limiter.check(rate, "u", cost=3)
    fake_clock.set(89)
    assert limiter.check(rate, "u")
    fake_clock.set(100)
    assert [bool(limiter.check(rate, "u")) for _ in range(2)] == [True, False]
    assert limiter.check(rate, "u").retry_after == 1.0


def test_a_node_whose_clock_is_behind_mints_nothing() -> None:
    store, rate = MemoryStore(), Rate.parse("2/s burst 4")
    ahead, behind = (Limiter(store, clock=FakeClock(seconds)) for seconds in (100, 90))
    assert [bool(ahead.check(rate, "u")) for _ in range(5)] == [True] * 4 + [False]
    assert not behind.check(rate, "u")
    assert not ahead.check(rate, "u")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, (NOW, 0, 0)),
        ((NOW, 5, 7), (NOW, 5, 7)),
        ((NOW - SECOND, 5, 0), (NOW, 4, 0)),
        ((NOW - 1, 5, 0), (NOW, 4, 59_999_940)),
        ((NOW - 3600 * SECOND, 5, 0), (NOW, 0, 0)),
        ((NOW + 60 * SECOND, 5, 7), (NOW + 60 * SECOND, 5, 7)),
        ((NOW + 60 * SECOND + 1, 5, 7), (NOW, 0, 0)),
    ],
)
def test_a_state_as_it_stands(state: tuple[int, int, int] | None, expected: tuple[int, int, int]) -> None:
    assert current(state, BUCKET, NOW) == expected


@pytest.mark.parametrize(
    ("state", "cost", "charged", "expected"),
    [
        ((NOW, 0, 0), 3, True, Outcome(True, 10, 7, 0, 3 * SECOND)),
        ((NOW, 0, 0), 3, False, Outcome(True, 10, 10, 0, 0)),
        ((NOW, 4, 30 * SECOND), 1, False, Outcome(True, 10, 5, 0, 4_500_000)),
        ((NOW, 10, 0), 2, False, Outcome(False, 10, 0, 2 * SECOND, 10 * SECOND)),
        ((NOW, 0, 0), 11, False, Outcome(False, 10, 10, NEVER, 0)),
        ((NOW, 15, 0), 0, True, Outcome(True, 10, 0, 0, 15 * SECOND)),
        ((NOW + 5 * SECOND, 10, 0), 1, False, Outcome(False, 10, 0, 6 * SECOND, 15 * SECOND)),
    ],
)
def test_an_outcome(state: tuple[int, int, int], cost: int, charged: bool, expected: Outcome) -> None:
    assert outcome(state, BUCKET, cost, NOW, charged) == expected


@given(st.integers(1, 1000), st.integers(1, 3600), st.integers(1, 50), st.integers(1, 50), st.integers(0, 10**7))
def test_the_wait_is_exact(limit: int, window: int, burst: int, cost: int, share: int) -> None:
    rate = Rate(limit, window, burst, "token_bucket")
    state = (NOW, burst, share % rate.window_us)
    wait_us = outcome(state, rate, cost, NOW, False).retry_after_us
    if cost > burst:
        assert wait_us == NEVER
    else:
        assert passes(current(state, rate, NOW + wait_us), rate, cost, NOW + wait_us)
        assert not passes(current(state, rate, NOW + wait_us - 1), rate, cost, NOW + wait_us - 1)


@pytest.mark.parametrize(
    ("cost", "expected"), [(2, (NOW, 7, 9)), (-2, (NOW, 3, 9)), (-5, (NOW, 0, 9)), (-6, (NOW, 0, 0))]
)
def test_settling_takes_or_gives_back_whole_units(cost: int, expected: tuple[int, int, int]) -> None:
    assert settle((NOW, 5, 9), BUCKET, cost, NOW - 5) == take((NOW, 5, 9), cost) == expected


@pytest.mark.parametrize(
    ("state", "lifetime"),
    [((NOW, 5, 0), 5 * SECOND), ((NOW, 0, 0), 0), ((NOW + 7, 0, 0), 7), ((NOW + 7, 1, 0), SECOND + 7)],
)
def test_a_state_matters_until_nothing_is_in_use(state: tuple[int, int, int], lifetime: int) -> None:
    assert lifetime_us(state, BUCKET, NOW) == lifetime


@pytest.mark.parametrize("cost", [0, 1])
def test_a_limit_of_zero_never_passes(cost: int) -> None:
    assert outcome((NOW, 0, 0), Rate.parse("0/m burst 5"), cost, NOW, False) == Outcome(False, 5, 0, NEVER, 0)
