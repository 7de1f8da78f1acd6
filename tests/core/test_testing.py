"""What the product offers to the tests of applications and stores."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ratelimit import Limiter, MemoryStore, Rate, get_limiter, settings
from ratelimit.outcome import TAKE, Charge, Outcome
from ratelimit.testing import START, Driver, FakeClock, StoreConformance, isolated

THREE = Rate.parse("3/m")


class TestFakeClock:
    def test_stands_still_until_moved(self) -> None:
        clock = FakeClock()
        assert [clock(), clock()] == [1_800_000_000_000_000] * 2
        clock.advance(0.000001)
        assert clock() == 1_800_000_000_000_001
        clock.advance(-1)
        assert clock() == 1_799_999_999_000_001
        clock.set(5.5)
        assert clock() == 5_500_000
        assert FakeClock(0.25)() == 250_000

    def test_begins_with_a_window_of_every_unit_but_days(self) -> None:
        assert [START % unit for unit in (1, 30, 60, 3600)] == [0] * 4


class TestIsolated:
    @pytest.mark.parametrize("_", range(2))
    def test_nothing_counted_in_one_test_is_seen_in_the_next(self, limiter: Limiter, _: int) -> None:
        assert get_limiter() is limiter
        assert [bool(get_limiter().check(THREE, "u")) for _ in range(4)] == [True, True, True, False]

    def test_the_limiter_and_the_settings_of_before_come_back(self) -> None:
        with isolated(proxies_count=1) as outer:
            with isolated(proxies_count=2) as inner:
                assert get_limiter() is inner is not outer
                assert inner.settings.proxies_count == settings.current().proxies_count == 2
            assert get_limiter() is outer
            assert outer.settings.proxies_count == 1
        assert settings.current().proxies_count == 0

    def test_an_error_inside_leaves_no_trace(self) -> None:
        with isolated() as outer:
            with pytest.raises(KeyError), isolated(disable=True):
                raise KeyError
            assert get_limiter() is outer
            assert not settings.current().disable

    def test_takes_a_store_and_a_clock_even_an_empty_store(self, fake_clock: FakeClock) -> None:
        store = MemoryStore()
        with isolated(store, fake_clock) as limiter:
            assert limiter.store is store
            limiter.check(THREE, "u")
            assert len(store) == 1
            fake_clock.advance(60)
            assert limiter.check(THREE, "u").remaining == 2


class TestTheConformanceSuite:
    """It would be worth nothing if it let a faulty store pass."""

    def test_finds_a_store_that_lets_one_too_many_through(self, fake_clock: FakeClock) -> None:
        class Generous(MemoryStore):
            def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
                more = [c._replace(rate=Rate(c.rate.limit + 1, c.rate.window)) for c in charges]
                return super().apply(more, now_us, mode)

        self.assert_found(Generous(), fake_clock, StoreConformance().test_of_n_plus_one_calls_n_pass)

    def test_finds_a_store_that_writes_when_it_should_look(self, fake_clock: FakeClock) -> None:
        class Nosy(MemoryStore):
            def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
                return super().apply(charges, now_us, TAKE)

        self.assert_found(Nosy(), fake_clock, StoreConformance().test_peek_sees_and_changes_nothing)

    def test_finds_a_store_that_cuts_keys(self, fake_clock: FakeClock) -> None:
        class Truncating(MemoryStore):
            def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
                return super().apply([c._replace(caller=c.caller[:30]) for c in charges], now_us, mode)

        self.assert_found(Truncating(), fake_clock, StoreConformance().test_odd_callers_are_independent)

    def test_leaves_out_what_a_medium_cannot_do(self, fake_clock: FakeClock) -> None:
        class Untouchable(MemoryStore):
            def apply(self, *_: Any) -> Any:
                raise AssertionError

        suite, store = StoreConformance(), Untouchable()
        suite.atomic = suite.clears_callers = False
        with asyncio.Runner() as runner:
            driver = Driver(Limiter(store, clock=fake_clock), "sync", runner)
            suite.test_clear_without_a_rule_forgets_all_of_one_caller(driver)
        suite.test_exact_under_concurrency(store, fake_clock)

    @staticmethod
    def assert_found(store: MemoryStore, clock: FakeClock, test: object) -> None:
        for mode in ("sync", "async"):
            with asyncio.Runner() as runner:
                driver = Driver(Limiter(store, clock=clock), mode, runner)
                assert not driver.check(THREE, "is it a store at all?").degraded
                with pytest.raises(AssertionError):
                    test(driver)  # type: ignore[operator]
