from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ratelimit import ConfigurationError, Limiter, MemoryStore, Rate, Rule
from ratelimit.settings import Settings
from ratelimit.stores import memory
from ratelimit.testing import FakeClock, PlacesConformance, StoreConformance

ONCE, TWICE = Rate.parse("1/m"), Rate.parse("2/m")


class TestMemoryStore(StoreConformance, PlacesConformance):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


class TestAtItsSmallestSize(StoreConformance, PlacesConformance):
    """Room for the keys of one test only: evicting and releasing all the time changes no count that matters."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore(max_keys=14)


def limiter_of(max_keys: int, clock: FakeClock) -> tuple[Limiter, MemoryStore]:
    store = MemoryStore(max_keys)
    return Limiter(store, clock=clock), store


class TestUnderConcurrency:
    @pytest.fixture(autouse=True)
    def eager_threads(self) -> Iterator[None]:
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(before)

    def test_eight_threads_get_exactly_n_of_n_plus_one(self, fake_clock: FakeClock) -> None:
        limiter, _ = limiter_of(100, fake_clock)
        for caller in range(25):
            start = threading.Barrier(8)

            def one(_: int, caller: int = caller, start: threading.Barrier = start) -> bool:
                start.wait()
                return bool(limiter.check(Rate(7, 60), f"u{caller}"))

            with ThreadPoolExecutor(8) as threads:
                assert sum(threads.map(one, range(8))) == 7

    async def test_two_hundred_coroutines_get_exactly_n_of_n_plus_one(self, fake_clock: FakeClock) -> None:
        limiter, _ = limiter_of(100, fake_clock)
        decisions = await asyncio.gather(*(limiter.acheck(Rate(199, 60), "u") for _ in range(200)))
        assert [decision.allowed for decision in decisions].count(False) == 1
        assert sorted(decision.remaining for decision in decisions) == [0, *range(199)]

    def test_threads_stay_exact_while_other_keys_come_expire_and_are_evicted(self, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(300, fake_clock)

        def busy(thread: int) -> int:
            passed = 0
            for number in range(400):
                limiter.check(ONCE if number % 2 else TWICE, f"junk {thread} {number}", group="junk")
                limiter.check(Rate(5, 1), f"junk {thread} {number}", group="seconds")
                if number % 10 == 0:
                    fake_clock.advance(0.001)
                    passed += bool(limiter.check(Rate(100, 3600), "u"))
            return passed

        limiter.check(Rate(100, 3600), "u", cost=100)
        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(busy, range(8))) == 0
        assert len(store) <= 300

    def test_threads_and_event_loops_share_a_budget(self, fake_clock: FakeClock) -> None:
        limiter, _ = limiter_of(100, fake_clock)

        async def fifty() -> int:
            return sum(map(bool, await asyncio.gather(*(limiter.acheck(Rate(100, 60), "u") for _ in range(50)))))

        with ThreadPoolExecutor(4) as threads:
            assert sum(threads.map(lambda _: asyncio.run(fifty()), range(4))) == 100


class TestMemory:
    def test_holds_at_most_max_keys(self, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(10, fake_clock)
        for number in range(100):
            limiter.check(TWICE, f"u{number}")
            assert len(store) == min(number + 1, 10)

    @pytest.mark.parametrize("max_keys", [0, -1, 1.0, True, "10", None])
    def test_a_bound_that_is_no_count_is_an_error(self, max_keys: int) -> None:
        with pytest.raises(ConfigurationError, match="max_keys"):
            MemoryStore(max_keys)

    def test_looks_costs_of_zero_and_denials_hold_nothing(self, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(10, fake_clock)
        limiter.peek(TWICE, "u")
        limiter.check(TWICE, "u", cost=0)
        limiter.check(TWICE, "u", cost=3)
        limiter.check(Rate.parse("0/m"), "u")
        assert len(store) == 0

    def test_the_least_recently_used_open_key_makes_room(self, fake_clock: FakeClock) -> None:
        limiter, _ = limiter_of(3, fake_clock)
        for caller in ("a", "b", "c", "a"):
            limiter.check(Rate(5, 60), caller)
        limiter.check(Rate(5, 60), "d")
        assert [limiter.peek(Rate(5, 60), caller).remaining for caller in "abcd"] == [3, 5, 4, 4]

    @pytest.mark.parametrize("costs", [(9,), (1, 8), (8, 1)])
    @pytest.mark.parametrize("rate", ["9/m", "9/m burst 9"])
    def test_a_spent_key_never_makes_room_for_junk(
        self, rate: str, costs: tuple[int, ...], fake_clock: FakeClock
    ) -> None:
        limiter, _ = limiter_of(10, fake_clock)
        spent, wide = Rate.parse(rate), Rate.parse(rate.replace("9", "99"))
        assert all(limiter.check(spent, "victim", cost=cost) for cost in costs)
        for number in range(1000):
            limiter.check(wide, f"junk{number}", cost=98)
        assert not limiter.check(spent, "victim")

    def test_of_spent_keys_alone_the_one_that_ends_first_makes_room(self, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(3, fake_clock)
        windows = {"hour": 3600, "second": 1, "minute": 60, "day": 86_400}
        for caller, window in windows.items():
            limiter.check(Rate(1, window), caller)
        left = [limiter.peek(Rate(1, window), caller).remaining for caller, window in windows.items()]
        assert left == [0, 1, 0, 0]
        assert len(store) == 3

    def test_a_spent_key_that_was_given_a_later_end_does_not_make_room_for_its_old_one(
        self, fake_clock: FakeClock
    ) -> None:
        limiter, store = limiter_of(2, fake_clock)
        bucket = Rate.parse("1/m burst 10")
        limiter.check(bucket, "u", cost=1)  # free again in a minute
        limiter.check(Rate(1, 120), "v")
        limiter.check(bucket, "u", cost=9)  # free again in ten
        limiter.check(ONCE, "w")
        assert (limiter.peek(bucket, "u").remaining, limiter.peek(Rate(1, 120), "v").remaining) == (0, 1)
        assert len(store) == 2

    def test_of_bans_alone_the_one_that_ends_first_makes_room(self, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(2, fake_clock)
        rules = {seconds: Rule(f"ban{seconds}", "1/m", ban_for=seconds) for seconds in (900, 300, 600)}
        for rule in rules.values():
            assert [bool(limiter.check(rule, "u")) for _ in range(2)] == [True, False]
        assert [limiter.peek(rule, "u").banned for rule in rules.values()] == [True, False, True]
        assert len(store) == 2

    def test_who_tried_the_fewest_values_makes_room(self, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(3, fake_clock)
        names = Rule("names", "9/h", by="ip", count_distinct="account")
        for caller, many in (("a", 3), ("b", 1), ("c", 2), ("d", 1)):
            for number in range(many):
                limiter.check(names, caller, attributes={"account": str(number)})
        left = [limiter.peek(names, caller, attributes={"account": "0"}).remaining for caller in "abcd"]
        assert left == [6, 9, 7, 8]
        assert len(store) == 3

    def test_the_ban_outlasts_a_flood_of_spent_keys(self, fake_clock: FakeClock) -> None:
        limiter, _ = limiter_of(5, fake_clock)
        rule = Rule("probe", "1/m", ban_for=300)
        assert [bool(limiter.check(rule, "u")) for _ in range(2)] == [True, False]
        for number in range(100):
            limiter.check(ONCE, f"junk{number}")
        assert limiter.check(rule, "u").retry_after == 300.0

    def test_an_expired_key_makes_room_before_any_key_that_counts(self, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(100, fake_clock)
        for number in range(99):
            limiter.check(ONCE, f"spent{number}")
        fake_clock.advance(121)  # the window, and the minute it is kept for nodes that are behind
        limiter.check(TWICE, "open")
        for number in range(50):
            limiter.check(ONCE, f"new{number}")
            assert len(store) <= 100
        assert limiter.peek(TWICE, "open").remaining == 1

    def test_who_uses_most_of_eight_is_not_the_one_to_go(self, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(8, fake_clock)
        for number in range(8):
            limiter.check(Rate(9, 60), f"u{number}", cost=8 - number)
        limiter.check(Rate(9, 60), "new")
        assert [limiter.peek(Rate(9, 60), f"u{number}").remaining for number in (0, 6, 7)] == [1, 7, 9]
        assert limiter.peek(Rate(9, 60), "new").remaining == 8
        assert len(store) == 8

    @pytest.mark.parametrize("rate", ["9/m", "9/m sliding", "9/m anchored", "9/m burst 9"])
    def test_one_who_is_busy_outlasts_a_flood_of_strangers(self, rate: str, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(5000, fake_clock)
        limiter.check(Rate.parse(rate), "busy", cost=7)
        for number in range(20_000):
            limiter.check(Rate.parse(rate), f"stranger{number}")
        assert limiter.check(Rate.parse(rate), "busy").remaining == 1
        assert len(store) == 5000

    def test_expired_keys_are_let_go_a_few_at_a_time(self, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(10_000, fake_clock)
        for number in range(1000):
            limiter.check(TWICE, f"u{number}", cost=1 + number % 2)
        fake_clock.advance(121)
        held = []
        for number in range(4):
            limiter.check(Rate(100, 60), f"v{number}")
            held.append(len(store))
        assert held == [993, 986, 979, 972]
        for _ in range(130):
            limiter.peek(TWICE, "u")
        assert len(store) == 4

    def test_a_spent_and_an_open_key_of_an_expired_window_are_both_forgotten(self, fake_clock: FakeClock) -> None:
        limiter, _ = limiter_of(10, fake_clock)
        limiter.check(TWICE, "spent", cost=2)
        limiter.check(TWICE, "open")
        fake_clock.advance(60)
        assert [limiter.peek(TWICE, caller).remaining for caller in ("spent", "open")] == [2, 2]

    def test_a_full_store_still_serves_many_windows(self, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(5, fake_clock)
        for second in range(1000):
            fake_clock.advance(1)
            assert limiter.check(Rate(1, 1), f"u{second}")
            assert not limiter.check(Rate(1, 1), f"u{second}")
            assert len(store) <= 5

    @pytest.mark.parametrize("rate", ["9/m", "9/m burst 9", "9/m sliding"])
    def test_a_large_store_clears_one_of_many(self, rate: str, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(10_000, fake_clock)
        for number in range(5_000):
            limiter.check(Rate.parse(rate), f"u{number}")
        assert limiter.check(Rate.parse(rate), "u4999").remaining == 7
        limiter.clear(Rate.parse(rate), "u4999")
        assert limiter.check(Rate.parse(rate), "u4998").remaining == 7
        assert limiter.check(Rate.parse(rate), "u4999").remaining == 8
        assert len(store) == 5_000

    @pytest.mark.parametrize("rate", ["9/m", "9/m burst 9", "9/m sliding", "9/m anchored"])
    def test_a_large_store_counts_each_of_many(self, rate: str, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(10_000, fake_clock)
        for cost in (1, 3, 1):
            for number in range(3_000):
                limiter.check(Rate.parse(rate), f"u{number}", cost=cost)
        assert {limiter.check(Rate.parse(rate), f"u{number}").remaining for number in range(3_000)} == {3}
        assert len(store) == 3_000

    @pytest.mark.parametrize("rate", ["9/m burst 9", "9/m sliding", "9/m anchored"])
    def test_who_is_long_gone_is_forgotten_while_another_goes_on(self, rate: str, fake_clock: FakeClock) -> None:
        limiter, store = limiter_of(10_000, fake_clock)
        for number in range(50):
            limiter.check(Rate.parse(rate), f"u{number}")
        for _ in range(300):
            fake_clock.advance(10)
            assert limiter.check(Rate.parse(rate), "there")
        assert len(store) == 1

    def test_of_a_wide_and_a_narrow_bucket_in_one_group_each_has_its_own_room(self, fake_clock: FakeClock) -> None:
        limiter, _ = limiter_of(10_000, fake_clock)
        years = 10 * 366 * 86_400
        wide, narrow = Rate(10**12, years, 10**12, "token_bucket"), Rate(9, years, 9, "token_bucket")
        for number in range(3_000):
            limiter.check(wide, f"u{number}", cost=10**6)
        for number in (0, 2_999):
            assert not limiter.check(narrow, f"u{number}")
            left = [10**12 - limiter.check(wide, f"u{number}").remaining for _ in range(3)]
            assert left == [10**6 + 1, 10**6 + 2, 10**6 + 3]
        assert limiter.check(narrow, "another").remaining == 8

    def test_a_caller_is_cleared_under_one_prefix(self, fake_clock: FakeClock) -> None:
        store = MemoryStore()
        one, other = (Limiter(store, clock=fake_clock, settings=Settings(key_prefix=name)) for name in ("a", "b"))
        for limiter in (one, other):
            limiter.check(TWICE, "u")
        one.clear(None, "u")
        assert [limiter.peek(TWICE, "u").remaining for limiter in (one, other)] == [2, 1]

    def test_a_bucket_goes_on_while_the_clock_steps_back_and_is_full_again_later(self, fake_clock: FakeClock) -> None:
        limiter, _ = limiter_of(10, fake_clock)
        bucket = Rate.parse("60/m burst 60")
        assert [limiter.check(bucket, "u").remaining for _ in range(3)] == [59, 58, 57]
        fake_clock.advance(-10)
        assert [limiter.check(bucket, "u").remaining for _ in range(2)] == [56, 55]
        fake_clock.advance(11)
        assert limiter.check(bucket, "u").remaining == 55
        fake_clock.advance(30)
        assert limiter.check(bucket, "u").remaining == 59

    def test_numbers_beyond_64_bits_are_kept_too(self, fake_clock: FakeClock) -> None:
        limiter, _ = limiter_of(10, fake_clock)
        bucket = Rate(10**12, 10 * 366 * 86_400, 10**12, "token_bucket")
        assert [limiter.check(bucket, "u", cost=10**11).remaining for _ in range(3)] == [
            9 * 10**11,
            8 * 10**11,
            7 * 10**11,
        ]

    def test_what_is_settled_late_goes_into_the_window_it_was_taken_in(self, fake_clock: FakeClock) -> None:
        limiter, _ = limiter_of(10, fake_clock)
        reservation = limiter.reserve(TWICE, "u", cost=0)
        fake_clock.advance(60)
        limiter.check(TWICE, "another")
        reservation.settle(2)
        assert limiter.peek(TWICE, "u").remaining == 2
        fake_clock.advance(-60)
        assert limiter.peek(TWICE, "u").remaining == 0

    def test_a_limit_raised_in_flight_opens_a_spent_key(self, fake_clock: FakeClock) -> None:
        limiter, _ = limiter_of(10, fake_clock)
        limiter.check(TWICE, "u", cost=2)
        assert limiter.check(Rate.parse("4/m"), "u").remaining == 1
        assert not limiter.check(TWICE, "u")


def test_no_thread_is_started(fake_clock: FakeClock) -> None:
    before = threading.enumerate()
    limiter, _ = limiter_of(10, fake_clock)
    for number in range(100):
        limiter.check(TWICE, f"u{number}")
        fake_clock.advance(10)
    assert threading.enumerate() == before


def test_an_empty_store_is_a_store() -> None:
    assert MemoryStore()
    assert len(MemoryStore()) == 0


async def test_closing_keeps_the_counts(fake_clock: FakeClock) -> None:
    limiter, _ = limiter_of(10, fake_clock)
    limiter.check(TWICE, "u")
    limiter.close()
    await limiter.aclose()
    assert limiter.peek(TWICE, "u").remaining == 1


def test_what_runs_in_a_forked_child_renews_a_lock_that_stays_held(fake_clock: FakeClock) -> None:
    limiter, store = limiter_of(10, fake_clock)
    store._keeper.lock.acquire()
    memory._renew_locks()
    assert limiter.check(TWICE, "u")


FORK_WHILE_A_THREAD_HOLDS_THE_LOCK = """
import os, signal, sys, threading
from ratelimit import Limiter, MemoryStore, Rate

store = MemoryStore()
limiter = Limiter(store)
rate = Rate(2, 10 * 366 * 86_400)
assert limiter.check(rate, "u")
held, done = threading.Event(), threading.Event()

def hold():
    with store._keeper.lock:
        held.set()
        done.wait()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    sys.exit([bool(limiter.check(rate, "u")) for _ in range(2)] != [True, False])
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
done.set()
assert [bool(limiter.check(rate, "u")) for _ in range(2)] == [True, False], "the child spent the parent's budget"
sys.exit(status)
"""


def test_a_forked_child_goes_on_from_the_parents_counts_even_if_a_thread_held_the_lock() -> None:
    found = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK_WHILE_A_THREAD_HOLDS_THE_LOCK],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert found.returncode == 0, found.stderr
