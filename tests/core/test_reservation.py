from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ratelimit import ConfigurationError, Identity, Limiter, MemoryStore, Policy, Rate, Rule, StoreError
from ratelimit.outcome import TAKE, Charge, Outcome
from ratelimit.rates import MAX_LIMIT
from ratelimit.reservation import Reservation
from ratelimit.testing import FakeClock, isolated

TEN = Rate(10, 60)


class WatchedStore(MemoryStore):
    """Records what is asked of it, and fails while it has an `error`."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.error: Exception | None = None

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        self._ask("apply")
        return super().apply(charges, now_us, mode)

    def settle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
        self._ask("settle")
        super().settle(charges, now_us, taken_us)

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.error is not None:
            raise self.error


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore()


@pytest.fixture
def limiter(store: WatchedStore, fake_clock: FakeClock) -> Limiter:
    return Limiter(store, clock=fake_clock)


def left(limiter: Limiter, rule: Any = TEN) -> int:
    return limiter.peek(rule, "u").remaining


class TestSettling:
    @pytest.mark.parametrize(("actual", "remaining"), [(0, 10), (3, 7), (6, 4), (9, 1), (10, 0), (15, 0)])
    async def test_makes_the_cost_what_it_was(self, limiter: Limiter, actual: int, remaining: int) -> None:
        reserved = limiter.reserve(TEN, "u", cost=6)
        assert (reserved.decision.allowed, reserved.decision.remaining, left(limiter)) == (True, 4, 4)
        reserved.settle(actual)
        assert left(limiter) == remaining
        limiter.clear(TEN, "u")
        reserved = await limiter.areserve(TEN, "u", cost=6)
        await reserved.asettle(actual)
        assert left(limiter) == remaining

    def test_beyond_the_limit_is_paid_before_the_next_call(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        bucket = Rate.parse("60/m burst 10")
        limiter.reserve(bucket, "u", cost=10).settle(15)
        assert limiter.check(bucket, "u").retry_after == 6.0
        fake_clock.advance(6)
        assert limiter.check(bucket, "u")

    def test_is_one_round_trip_and_none_when_nothing_changes(self, limiter: Limiter, store: WatchedStore) -> None:
        limiter.reserve(TEN, "u", cost=6).settle(3)
        assert store.asked == ["apply", "settle"]
        limiter.reserve(TEN, "u", cost=6).settle(6)
        assert store.asked == ["apply", "settle", "apply"]

    async def test_counts_once_whatever_follows(self, limiter: Limiter) -> None:
        for settle in (lambda r: r.settle(2), lambda r: r.cancel(), lambda r: r.settle(9)):
            reserved = limiter.reserve(TEN, "u", cost=6)
            settle(reserved)
            now = left(limiter)
            reserved.settle(1)
            reserved.cancel()
            await reserved.asettle(10)
            await reserved.acancel()
            assert left(limiter) == now
            limiter.clear(TEN, "u")

    def test_of_the_estimate_itself_counts_as_settled(self, limiter: Limiter) -> None:
        reserved = limiter.reserve(TEN, "u", cost=6)
        reserved.settle(6)
        reserved.cancel()
        assert left(limiter) == 4

    def test_counts_once_even_by_threads(self, limiter: Limiter, eager_threads: None) -> None:
        for _ in range(20):
            limiter.check(TEN, "u", cost=4)
            reserved, start = limiter.reserve(TEN, "u", cost=3), threading.Barrier(8)

            def cancel(reserved: Reservation = reserved, start: threading.Barrier = start) -> None:
                start.wait()
                reserved.cancel()

            threads = [threading.Thread(target=cancel) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert left(limiter) == 6
            limiter.clear(TEN, "u")

    async def test_counts_once_even_by_tasks(self, store: WatchedStore, fake_clock: FakeClock) -> None:
        class Slow(WatchedStore):
            async def asettle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
                await asyncio.sleep(0)
                self.settle(charges, now_us, taken_us)

        limiter = Limiter(Slow(), clock=fake_clock)
        limiter.check(TEN, "u", cost=4)
        reserved = await limiter.areserve(TEN, "u", cost=3)
        await asyncio.gather(*(reserved.acancel() for _ in range(5)))
        assert left(limiter) == 6

    @pytest.mark.parametrize("actual", [-1, 1.5, True, None, "1", MAX_LIMIT + 1])
    def test_a_cost_that_is_none_is_an_error_and_leaves_it_to_be_done(self, limiter: Limiter, actual: Any) -> None:
        reserved = limiter.reserve(TEN, "u", cost=6)
        with pytest.raises(ConfigurationError, match="is not a whole number from 0 to"):
            reserved.settle(actual)
        reserved.settle(1)
        assert left(limiter) == 9

    def test_gives_back_to_the_window_that_it_was_taken_in(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        fake_clock.advance(59)
        reserved = limiter.reserve(TEN, "u", cost=6)
        fake_clock.advance(2)
        limiter.check(TEN, "u", cost=3)
        reserved.cancel()
        assert left(limiter) == 7

    @pytest.mark.parametrize("text", ["10/m anchored", "10/m sliding"])
    def test_gives_nothing_back_to_a_later_window(self, limiter: Limiter, fake_clock: FakeClock, text: str) -> None:
        rate = Rate.parse(text)
        reserved = limiter.reserve(rate, "u", cost=6)
        fake_clock.advance(120)
        limiter.check(rate, "u", cost=3)
        reserved.cancel()
        assert left(limiter, rate) == 7

    def test_what_a_bucket_has_freed_meanwhile_is_not_freed_again(
        self, limiter: Limiter, fake_clock: FakeClock
    ) -> None:
        bucket = Rate.parse("60/m burst 10")
        reserved = limiter.reserve(bucket, "u", cost=6)
        limiter.check(bucket, "u", cost=2)
        fake_clock.advance(3)
        assert left(limiter, bucket) == 5
        reserved.cancel()
        assert left(limiter, bucket) == 10

    def test_charges_every_rule_by_its_weight(self, limiter: Limiter) -> None:
        one, three, none = Rule("one", "50/m"), Rule("three", "50/m; 90/h", cost=3), Rule("none", "50/m", cost=0)
        reserved = limiter.reserve(Policy(one, three, none), "u", cost=4)
        assert [part.outcome.remaining for part in reserved.decision.parts] == [46, 38, 78, 50]
        reserved.settle(10)
        assert [left(limiter, rule) for rule in (one, three, none)] == [40, 20, 50]
        assert [part.outcome.remaining for part in limiter.peek(three, "u").parts] == [20, 60]

    @pytest.mark.parametrize("text", ["10/m", "10/m anchored", "10/m sliding", "60/m burst 10"])
    def test_gives_nothing_back_to_who_was_cleared_meanwhile(self, limiter: Limiter, text: str) -> None:
        rate = Rate.parse(text)
        reserved = limiter.reserve(rate, "u", cost=6)
        limiter.clear(rate, "u")
        reserved.cancel()
        limiter.check(rate, "u", cost=3)
        assert left(limiter, rate) == 7


class TestReserving:
    def test_that_is_denied_takes_nothing_and_has_nothing_to_settle(
        self, limiter: Limiter, store: WatchedStore
    ) -> None:
        limiter.check(TEN, "u", cost=5)
        reserved = limiter.reserve(TEN, "u", cost=6)
        assert (reserved.decision.allowed, reserved.decision.retry_after) == (False, 60.0)
        reserved.settle(3)
        reserved.cancel()
        assert left(limiter) == 5
        assert "settle" not in store.asked

    def test_of_no_units_can_be_settled_for_some(self, limiter: Limiter) -> None:
        reserved = limiter.reserve(TEN, "u", cost=0)
        assert left(limiter) == 10
        reserved.settle(4)
        assert left(limiter) == 6

    async def test_is_counted_like_a_check(self, limiter: Limiter) -> None:
        user = Identity("42", "203.0.113.7")
        reserved = limiter.reserve("AI_QUERY", user, cost=3, key="ip", group="g", protocol="graphql")
        assert (reserved.decision.key, reserved.decision.rule, reserved.decision.remaining) == (
            "ip:203.0.113.7",
            "g",
            37,
        )
        rule = Rule("r", "9/m", by="device", match={"device": "d1"})
        other = await limiter.areserve(rule, user, cost=3, attributes={"device": "d1"})
        assert (other.decision.key, other.decision.remaining) == ("device:d1", 6)

    @pytest.mark.parametrize("cost", [-5, 1.5, True, None, "1", MAX_LIMIT + 1])
    async def test_a_bad_cost_is_an_error_and_counts_nothing(self, limiter: Limiter, cost: Any) -> None:
        with pytest.raises(ConfigurationError, match="is not a whole number from 0 to"):
            limiter.reserve(TEN, "u", cost=cost)
        with pytest.raises(ConfigurationError, match="is not a whole number from 0 to"):
            await limiter.areserve(TEN, "u", cost=cost)
        assert left(limiter) == 10

    def test_a_weight_that_makes_a_cost_too_large_is_an_error(self, limiter: Limiter) -> None:
        rule = Rule("r", Rate(MAX_LIMIT, 60), cost=1000)
        with pytest.raises(ConfigurationError, match="rule 'r': cost 1000 times 1000000001 is more than 1000000000000"):
            limiter.reserve(rule, "u", cost=1_000_000_001)
        reserved = limiter.reserve(rule, "u", cost=5)
        with pytest.raises(ConfigurationError, match="rule 'r': cost 1000 times 1000000001 is more than"):
            reserved.settle(1_000_000_001)
        reserved.cancel()
        assert left(limiter, rule) == MAX_LIMIT

    def test_different_values_have_no_cost_to_reserve(self, limiter: Limiter) -> None:
        with pytest.raises(
            ConfigurationError, match="counts different values, which have no cost to reserve; use check"
        ):
            limiter.reserve(Rule("r", "9/h", count_distinct="account"), "u")

    def test_what_nothing_limits_has_nothing_to_settle(self, limiter: Limiter, store: WatchedStore) -> None:
        reserved = limiter.reserve(Rule("r", "9/m", match={"path": "/"}), "u", cost=5)
        assert (reserved.decision.allowed, reserved.decision.rule) == (True, "unlimited")
        reserved.settle(9)
        assert store.asked == []

    def test_while_limits_are_disabled_touches_no_store(self, store: WatchedStore) -> None:
        with isolated(store, disable=True) as limiter:
            reserved = limiter.reserve(TEN, "u", cost=5)
            assert (reserved.decision.allowed, reserved.decision.rule) == (True, "default")
            reserved.settle(9)
            reserved.cancel()
        assert store.asked == []

    def test_a_rule_in_shadow_that_would_have_refused_is_not_settled(self, limiter: Limiter) -> None:
        shadow, other = Rule("shadow", "3/m", action="log"), Rule("other", "20/m")
        reserved = limiter.reserve(Policy(shadow, other), "u", cost=5)
        assert (reserved.decision.allowed, reserved.decision.shadow_denials) == (True, ("shadow",))
        reserved.settle(7)
        assert [left(limiter, rule) for rule in (shadow, other)] == [3, 13]

    def test_of_a_rule_in_shadow_with_several_rates_none_is_if_one_would_have_refused(self, limiter: Limiter) -> None:
        shadow = Rule("shadow", "3/s; 9/m", action="log")
        reserved = limiter.reserve(Policy(shadow, Rule("other", "20/m")), "u", cost=5)
        assert [part.outcome.remaining for part in reserved.decision.parts] == [3, 9, 15]
        reserved.settle(7)
        assert [part.outcome.remaining for part in limiter.peek(shadow, "u").parts] == [3, 9]

    def test_a_rule_in_shadow_that_passed_is(self, limiter: Limiter) -> None:
        shadow = Rule("shadow", "9/m", action="log")
        limiter.reserve(shadow, "u", cost=5).settle(2)
        assert left(limiter, shadow) == 7


class TestContextManager:
    async def test_leaves_the_estimate_when_nothing_was_settled(self, limiter: Limiter) -> None:
        with limiter.reserve(TEN, "u", cost=3) as reserved:
            assert reserved.decision
        async with await limiter.areserve(TEN, "u", cost=3) as reserved:
            assert reserved.decision
        assert left(limiter) == 4

    async def test_leaves_what_was_settled(self, limiter: Limiter) -> None:
        with limiter.reserve(TEN, "u", cost=3) as reserved:
            reserved.settle(1)
        async with await limiter.areserve(TEN, "u", cost=3) as reserved:
            await reserved.asettle(1)
        assert left(limiter) == 8

    @pytest.mark.parametrize("error", [KeyError("x"), asyncio.CancelledError(), KeyboardInterrupt()])
    async def test_gives_the_estimate_back_when_the_block_raises(self, limiter: Limiter, error: BaseException) -> None:
        with pytest.raises(type(error)), limiter.reserve(TEN, "u", cost=3):
            raise error
        assert left(limiter) == 10
        with pytest.raises(type(error)):
            async with await limiter.areserve(TEN, "u", cost=3):
                raise error
        assert left(limiter) == 10

    async def test_keeps_what_was_settled_before_the_block_raised(self, limiter: Limiter) -> None:
        def broken(reserved: Reservation) -> None:
            reserved.settle(2)
            raise KeyError

        with pytest.raises(KeyError), limiter.reserve(TEN, "u", cost=3) as reserved:
            broken(reserved)
        assert left(limiter) == 8

    async def test_a_failing_store_does_not_hide_what_the_block_raised(
        self, limiter: Limiter, store: WatchedStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        first, second = limiter.reserve(TEN, "u", cost=3), await limiter.areserve(TEN, "u", cost=3)
        store.error = StoreError("down")
        with pytest.raises(KeyError), first:
            raise KeyError
        with pytest.raises(KeyError):
            async with second:
                raise KeyError
        line = "rate limit reservation could not be given back: rule=default: StoreError: down"
        assert caplog.messages == [line, line]
        store.error = None
        first.cancel()
        await second.acancel()
        assert left(limiter) == 10


class TestWithoutAStore:
    async def test_a_failure_is_raised_and_can_be_repeated_until_it_succeeds_once(
        self, limiter: Limiter, store: WatchedStore
    ) -> None:
        async def settle(reserved: Reservation) -> None:
            reserved.settle(2)

        async def asettle(reserved: Reservation) -> None:
            await reserved.asettle(2)

        ways: list[Callable[[Reservation], Any]] = [settle, asettle]
        for way in ways:
            reserved = limiter.reserve(TEN, "u", cost=6)
            store.error = StoreError("down")
            for _ in range(2):
                with pytest.raises(StoreError):
                    await way(reserved)
            store.error = None
            await way(reserved)
            await way(reserved)
            assert left(limiter) == 8
            limiter.clear(TEN, "u")

    async def test_a_settlement_that_was_broken_off_is_not_done_twice(self, fake_clock: FakeClock) -> None:
        class Hanging(WatchedStore):
            async def asettle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
                self.settle(charges, now_us, taken_us)
                await asyncio.Event().wait()

        limiter = Limiter(Hanging(), clock=fake_clock)
        limiter.check(TEN, "u", cost=4)
        reserved = await limiter.areserve(TEN, "u", cost=5)
        waiting = asyncio.create_task(self.settled_within(reserved))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert left(limiter) == 3

    @staticmethod
    async def settled_within(reserved: Reservation) -> None:
        async with reserved:
            await reserved.asettle(3)

    def test_what_an_outage_decided_is_not_settled(self, limiter: Limiter, store: WatchedStore) -> None:
        store.error = StoreError("down")
        reserved = limiter.reserve(TEN, "u", cost=6)
        assert (reserved.decision.allowed, reserved.decision.degraded) == (True, True)
        store.error = None
        reserved.settle(9)
        reserved.cancel()
        assert (left(limiter), "settle" in store.asked) == (10, False)
