"""What is known of a denied caller is answered without another trip, and is never wrong for longer than it may be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import ConfigurationError, Identity, Limiter, MemoryStore, Rate, RateLimits, Rule
from ratelimit.denials import MOST, Denials
from ratelimit.outcome import NEVER
from ratelimit.quota import Quota
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock

ONCE, FIVE = Rate.parse("1/m"), Rate.parse("5/m")


class Far:
    """A memory store's counter as one of a store that is far away: every answer is a trip."""

    def __init__(self, store: FarStore, counter: Any, rate: Rate) -> None:
        self._store, self._counter, self._rate = store, counter, rate

    def take(self, caller: str, cost: int, now_us: int) -> tuple[bool, Any, int]:
        self._store.trips += 1
        if self._store.error is not None:
            raise self._store.error
        quota = Quota("far", self._rate, self._counter)
        decision = self._counter.decide(quota, caller, cost, now_us)
        if self._store.then is not None:
            self._store.then()
        state, at_us = decision._found, decision._at_us
        return decision.allowed, state if isinstance(state, tuple) else self._counter.state(state, at_us), at_us

    async def atake(self, caller: str, cost: int, now_us: int) -> tuple[bool, Any, int]:
        return self.take(caller, cost, now_us)


class FarStore(MemoryStore):
    """Counts trips, and fails while it has an `error`. Before the answer of one is told, `then` happens."""

    def __init__(self) -> None:
        super().__init__()
        self.trips = 0
        self.error: Exception | None = None
        self.then: Callable[[], None] | None = None

    def counter(self, head: str, rate: Rate) -> Any:
        return Far(self, super().counter(head, rate), rate)


@pytest.fixture
def store() -> FarStore:
    return FarStore()


@pytest.fixture(params=["sync", "async"])
def check(request: pytest.FixtureRequest, store: FarStore, fake_clock: FakeClock) -> Iterator[Callable[..., Any]]:
    limiter = Limiter(store, clock=fake_clock)
    with asyncio.Runner() as runner:

        def ask(*args: Any, **options: Any) -> Any:
            if request.param == "sync":
                return limiter.check(*args, **options)
            asked: Awaitable[Any] = limiter.acheck(*args, **options)
            return runner.run(asked)  # type: ignore[arg-type]

        ask.limiter = limiter  # type: ignore[attr-defined]
        yield ask


def test_a_denied_caller_is_answered_without_a_trip(check: Any, store: FarStore, fake_clock: FakeClock) -> None:
    assert [bool(check(ONCE, "u")) for _ in range(9)] == [True] + [False] * 8
    assert store.trips == 2
    fake_clock.advance(0.499999)
    assert not check(ONCE, "u")
    assert store.trips == 2
    fake_clock.advance(0.000001)
    assert not check(ONCE, "u")
    assert store.trips == 3


def test_it_is_allowed_as_soon_as_its_wait_is_over(check: Any, store: FarStore, fake_clock: FakeClock) -> None:
    fake_clock.advance(59.8)
    assert [bool(check(ONCE, "u")) for _ in range(2)] == [True, False]
    fake_clock.advance(0.199999)
    denied = check(ONCE, "u")
    assert (denied.retry_after, denied.reset_after, denied.remaining, store.trips) == (0.000001, 0.000001, 0, 2)
    fake_clock.advance(0.000001)
    assert check(ONCE, "u")


def test_the_figures_go_on_as_the_store_would_give_them(check: Any, store: FarStore, fake_clock: FakeClock) -> None:
    rate = Rate.parse("60/m burst 60")
    assert check(rate, "u", cost=60)
    assert not check(rate, "u", cost=2)
    fake_clock.advance(0.4)
    denied = check(rate, "u", cost=3)
    assert store.trips == 2
    assert (denied.retry_after, denied.remaining, denied.reset_after) == (2.6, 0, 59.6)
    assert check.limiter.peek(rate, "u", cost=3).retry_after == 2.6


def test_what_was_freed_since_is_told(check: Any, store: FarStore, fake_clock: FakeClock) -> None:
    rate = Rate.parse("600/m burst 60")
    assert check(rate, "u", cost=60)
    assert not check(rate, "u", cost=10)
    fake_clock.advance(0.4)
    denied = check(rate, "u", cost=10)
    assert (denied.remaining, denied.retry_after, denied.reset_after, store.trips) == (4, 0.6, 5.6, 2)


def test_a_smaller_cost_is_asked_for(check: Any, store: FarStore) -> None:
    assert check(FIVE, "u", cost=3)
    assert not check(FIVE, "u", cost=4)
    assert not check(FIVE, "u", cost=3)
    assert not check(FIVE, "u", cost=5)
    assert store.trips == 3
    assert check(FIVE, "u", cost=2)
    assert store.trips == 4


@pytest.mark.parametrize("by", ["user_or_ip", "global"])
def test_who_passes_with_a_smaller_cost_is_told_what_is_left_then(
    by: str, check: Any, store: FarStore, fake_clock: FakeClock
) -> None:
    rule = Rule("r", "60/m burst 5", by=by)
    assert check(rule, "u", cost=3)
    assert [check(rule, "u", cost=5).retry_after for _ in range(2)] == [3.0] * 2
    assert store.trips == 2
    assert check(rule, "u", cost=2)
    denied = check(rule, "u", cost=5)
    assert (denied.retry_after, denied.remaining, store.trips) == (5.0, 0, 4)
    assert check.limiter.peek(rule, "u", cost=5).retry_after == 5.0
    fake_clock.advance(0.4)
    assert (check(rule, "u", cost=5).retry_after, store.trips) == (4.6, 4)


def test_a_cost_that_can_never_pass_is_known_too(check: Any, store: FarStore) -> None:
    assert [check(FIVE, "u", cost=6).retry_after for _ in range(3)] == [None] * 3
    assert store.trips == 1


def test_the_figures_of_a_cost_that_can_never_pass_are_the_next_windows_when_it_begins(
    check: Any, store: FarStore, fake_clock: FakeClock
) -> None:
    fake_clock.advance(59.75)
    assert check(FIVE, "u", cost=3)
    denied = [check(FIVE, "u", cost=6) for _ in range(2)]
    fake_clock.advance(0.25)
    denied += [check(FIVE, "u", cost=6) for _ in range(2)]
    assert [(bool(one), one.remaining, one.retry_after) for one in denied] == [(False, 2, None)] * 2 + [
        (False, 5, None)
    ] * 2
    assert store.trips == 3


def test_other_callers_rules_and_groups_are_asked_for(check: Any, store: FarStore) -> None:
    assert [bool(check(ONCE, "u")) for _ in range(2)] == [True, False]
    assert check(ONCE, "v")
    assert check(ONCE, "u", group="g")
    assert check(Rule("r", "1/m"), "u")
    assert check("EXPORT", "u")
    assert store.trips == 6


def test_a_higher_tier_is_not_denied_for_a_lower_one(check: Any, store: FarStore) -> None:
    anonymous, member = Identity(ip="203.0.113.7", name="n"), Identity("42", name="n")
    assert [bool(check(RateLimits.EXPORT, anonymous)) for _ in range(6)] == [True] * 5 + [False]
    assert check(RateLimits.EXPORT, member).remaining == 4
    assert not check(RateLimits.EXPORT, anonymous)
    assert store.trips == 7


def test_clear_forgets_it(check: Any, store: FarStore) -> None:
    limiter = check.limiter
    for clear in (
        lambda: limiter.clear(ONCE, "u"),
        lambda: limiter.clear(None, "u"),
        lambda: asyncio.run(limiter.aclear(ONCE, "u")),
        lambda: asyncio.run(limiter.aclear(None, "u")),
    ):
        assert [bool(check(ONCE, "u")) for _ in range(3)] == [True, False, False]
        clear()
    assert check(ONCE, "u")


def test_clear_forgets_it_in_every_tier(check: Any, store: FarStore) -> None:
    ann = Identity(user="ann", superuser=True)
    for trips in (2, 4):
        assert [bool(check("AI_QUERY", ann, cost=200)) for _ in range(3)] == [True, False, False]
        assert store.trips == trips
        check.limiter.clear("AI_QUERY", ann)


def test_clear_leaves_what_is_known_of_others(check: Any, store: FarStore) -> None:
    for caller in ("u", "v"):
        assert [bool(check(ONCE, caller)) for _ in range(2)] == [True, False]
    check.limiter.clear(ONCE, "u")
    assert not check(ONCE, "v")
    assert store.trips == 4
    assert check(ONCE, "u")


def test_an_answer_that_is_older_than_a_clear_is_not_remembered(
    check: Any, store: FarStore, fake_clock: FakeClock
) -> None:
    limiter, rate = check.limiter, ONCE

    def cleared_meanwhile() -> None:
        store.then = None
        fake_clock.advance(0.000001)
        limiter.clear(rate, "u")

    assert check(rate, "u")
    assert check(rate, "v")
    store.then = cleared_meanwhile
    assert [bool(check(rate, "v")) for _ in range(2)] == [False, False]  # another one: what it was told holds
    assert store.trips == 3
    assert check(rate, "u")
    store.then = cleared_meanwhile
    assert not check(rate, "u")
    assert [bool(check(rate, "u")) for _ in range(3)] == [True, False, False]
    assert store.trips == 7
    fake_clock.advance(-60.000001)  # put right: what was cleared since is none of this clock's
    assert check(rate, "u")
    assert [bool(check(rate, "u")) for _ in range(3)] == [False] * 3
    assert store.trips == 9


def test_units_given_back_are_seen_at_once(check: Any, store: FarStore) -> None:
    limiter = check.limiter
    for settle in (lambda one: one.settle(1), lambda one: asyncio.run(one.asettle(1))):
        reservation = limiter.reserve(FIVE, "u", cost=5)
        assert not check(FIVE, "u")
        settle(reservation)
        assert check(FIVE, "u").remaining == 3
        limiter.clear(FIVE, "u")


def test_a_changed_limit_is_seen_at_once(store: FarStore, fake_clock: FakeClock) -> None:
    from ratelimit.settings import override

    limiter = Limiter(store, clock=fake_clock)
    with override(overrides={"EXPORT": "1/h"}):
        assert [bool(limiter.check("EXPORT", "u")) for _ in range(3)] == [True, False, False]
    assert limiter.check("EXPORT", "u").remaining == 3


def test_it_can_be_switched_off(store: FarStore, fake_clock: FakeClock) -> None:
    limiter = Limiter(store, clock=fake_clock, settings=Settings(denial_cache_ms=0))
    assert [bool(limiter.check(ONCE, "u")) for _ in range(4)] == [True, False, False, False]
    assert store.trips == 4


@pytest.mark.parametrize("value", [-1, 60_001, "soon", 1.5, True, None])
def test_a_length_that_is_none_is_an_error(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="RATELIMIT_DENIAL_CACHE_MS"):
        Settings(denial_cache_ms=value)


def test_an_outage_is_not_remembered(check: Any, store: FarStore) -> None:
    store.error = OSError("down")
    limiter = check.limiter
    closed = Rule("closed", "1/m", on_outage="closed")
    assert [bool(check(closed, "u")) for _ in range(2)] == [False, False]
    store.error = None
    assert check(closed, "u")
    assert limiter.check(closed, "u").degraded is False


def test_a_clock_that_steps_back_forgets_it(check: Any, store: FarStore, fake_clock: FakeClock) -> None:
    assert [bool(check(ONCE, "u")) for _ in range(2)] == [True, False]
    fake_clock.advance(-3600)
    assert check(ONCE, "u")
    assert store.trips == 3


class TestDenials:
    FOUND = (False, (5,), 1_000)

    def test_are_bounded(self) -> None:
        denials = Denials(500_000)
        for number in range(MOST + 10):
            denials.put(f"u{number}", 1, 1_000, self.FOUND, 500)
        known = [denials.get(f"u{number}", 1, 1_001) is not None for number in range(MOST + 10)]
        assert known == [False] * 10 + [True] * MOST

    def test_do_not_hold_long_texts(self) -> None:
        denials = Denials(500_000)
        denials.put("u" * 1_000, 1, 1_000, self.FOUND, 500)
        assert denials.get("u" * 1_000, 1, 1_001) is None

    @given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 600), st.integers(1, 600) | st.just(NEVER))
    def test_hold_for_as_much_and_as_long_as_was_denied(self, cost: int, asked: int, later: int, wait: int) -> None:
        denials = Denials(500)
        denials.put("u", cost, 10_000, self.FOUND, wait)
        known = denials.get("u", asked, 10_000 + later)
        assert (known is not None) == (asked >= cost and later < (500 if wait == NEVER else min(wait, 500)))
        assert known in (None, (False, (5,), 1_000 + later))

    def test_the_smaller_of_two_costs_is_kept_while_it_holds(self) -> None:
        denials = Denials(500)
        denials.put("u", 2, 0, self.FOUND, 100)
        denials.put("u", 3, 50, self.FOUND, 400)
        assert [denials.get("u", cost, 99) is not None for cost in (1, 2, 3)] == [False, True, True]
        denials.put("u", 3, 100, self.FOUND, 400)
        assert [denials.get("u", cost, 101) is not None for cost in (2, 3)] == [False, True]
