"""Units that are taken several at a time are never too many, are lost to others by no more than is promised, and save trips."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import Rate, StoreError, hands, leases
from ratelimit.algorithms import fixed_window
from ratelimit.hands import MAX_HANDS
from ratelimit.leases import Leased
from ratelimit.outcome import MAX_SKEW_US, Outcome
from ratelimit.testing import START
from tests.core.far import Far, FarStore

NOW = START * 1_000_000
MINUTE = 60_000_000
ROOT = Path(__file__).parents[2]
COSTS = st.integers(1, 12)

Take = Callable[..., tuple[bool, Any, int]]


@pytest.fixture
def store() -> FarStore:
    return FarStore()


def far_of(store: FarStore, rate: str = "100/m") -> Far:
    return Far(store, "rl:g", Rate.parse(rate))


def worker(store: FarStore, size: int = 10, rate: str = "100/m") -> Leased:
    far = far_of(store, rate)
    return Leased(far, far.rate, size)


def in_hand(one: Leased, caller: str = "u", now_us: int = NOW) -> int:
    """Units that the worker has for the caller. They are spent by that."""
    units = 0
    while one.hands.spend(caller, 1, now_us) is not None:
        units += 1
    return units


@pytest.fixture(params=["sync", "async"])
def take(request: pytest.FixtureRequest) -> Iterator[Take]:
    with asyncio.Runner() as runner:

        def ask(one: Leased, cost: int = 1, caller: str = "u", now_us: int = NOW) -> tuple[bool, Any, int]:
            if request.param == "sync":
                return one.take(caller, cost, now_us)
            return runner.run(one.atake(caller, cost, now_us))

        yield ask


def figures(one: Leased | Far, cost: int, now_us: int = NOW, rate: str = "100/m") -> Outcome:
    passes, state, at_us = one.take("u", cost, now_us)
    found = fixed_window.outcome(state, Rate.parse(rate), cost, at_us, passes)
    assert found.allowed == passes
    return found


class TestTrips:
    @pytest.mark.parametrize("calls", [1, 9, 10, 11, 95, 100])
    def test_of_n_calls_are_as_many_as_leases(self, calls: int, take: Take, store: FarStore) -> None:
        one = worker(store)
        assert [take(one)[0] for _ in range(calls)] == [True] * calls
        assert len(store.trips) == -(-calls // 10)

    def test_are_for_what_is_missing_if_that_is_more_than_a_lease(self, take: Take, store: FarStore) -> None:
        one = worker(store)
        assert all(take(one, cost)[0] for cost in (3, 20, 4, 30))
        assert store.trips == [10, 13, 10, 24]
        assert store.used(far_of(store), "u", NOW) == 57
        assert in_hand(one) == 0

    def test_are_two_for_a_call_that_is_refused_a_lease(self, take: Take, store: FarStore) -> None:
        one, other = worker(store), far_of(store)
        take(one)
        other.take("u", 85, NOW)
        assert [take(one)[0] for _ in range(15)] == [True] * 14 + [False]
        # Nine were in hand. Then a lease was refused, one unit was not, and what was left went one by one.
        assert store.trips == [10, 85, 10, 1, 1, 1, 1, 1, 1]

    def test_of_one_caller_spend_nothing_of_another(self, take: Take, store: FarStore) -> None:
        one = worker(store, 60)
        assert take(one, 50, "a")[0]
        assert take(one, 50, "b")[0]
        assert store.trips == [60, 60]

    def test_are_one_for_a_cost_that_never_passes(self, take: Take, store: FarStore) -> None:
        one = worker(store)
        take(one)
        assert take(one, 101) == (False, (10,), NOW)
        assert store.trips == [10, 101]
        assert in_hand(one) == 9

    def test_ask_for_no_lease_beyond_the_limit(self, take: Take, store: FarStore) -> None:
        one = worker(store, 10, "5/m")
        assert [take(one)[0] for _ in range(6)] == [True] * 5 + [False]
        assert store.trips == [1] * 6

    def test_are_as_many_as_without_leases_for_callers_beyond_the_most(
        self, take: Take, store: FarStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hands, "MAX_HANDS", 3)
        one = worker(store, 2)
        for caller in "abcd":
            assert take(one, 1, caller)[0]
        assert store.trips == [2, 2, 2, 1]
        assert [take(one, 1, caller)[0] for caller in "abc"] == [True] * 3
        assert store.trips == [2, 2, 2, 1]  # their hands were kept; now they are empty
        assert [take(one, 1, caller)[0] for caller in "defd"] == [True] * 4
        assert store.trips[4:] == [2, 2, 2]
        assert MAX_HANDS > 1_000

    def test_a_hand_that_makes_room_may_have_been_dropped(
        self, store: FarStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hands, "MAX_HANDS", 2)
        one = worker(store, 2)
        for caller in "abc":  # c is turned away, and those that may make room are listed
            one.take(caller, 1, NOW)
        one.hands.drop("a")
        for caller in "dbe":
            one.take(caller, 1, NOW)
        assert store.trips == [2, 2, 1, 2, 2]


class TestWindows:
    def test_units_are_spent_in_their_own(self, take: Take, store: FarStore) -> None:
        one = worker(store)
        assert take(one, now_us=NOW - 1)[0]
        assert take(one, now_us=NOW)[0]
        assert store.trips == [10, 10]
        assert [store.used(far_of(store), "u", at_us) for at_us in (NOW - 1, NOW)] == [10, 10]

    def test_a_call_of_the_one_before_is_asked_for_alone_and_leaves_the_hands_as_they_are(
        self, take: Take, store: FarStore
    ) -> None:
        one = worker(store)
        take(one, now_us=NOW)
        assert take(one, now_us=NOW - 1) == (True, (0,), NOW - 1)
        assert store.trips == [10, 1]
        assert in_hand(one) == 9

    def test_a_clock_that_was_put_right_begins_anew(self, take: Take, store: FarStore) -> None:
        one = worker(store)
        take(one, now_us=NOW)
        take(one, now_us=NOW - MAX_SKEW_US)
        assert store.trips == [10, 1]
        take(one, now_us=NOW - MAX_SKEW_US - 1)
        take(one, now_us=NOW - MAX_SKEW_US - 1)
        assert store.trips == [10, 1, 10]


class TestFigures:
    @given(st.lists(st.tuples(COSTS, st.sampled_from([0, 0, 0, 1, MINUTE])), max_size=60), st.integers(2, 12))
    def test_of_a_worker_that_is_alone_are_those_without_leases(self, calls: list[tuple[int, int]], size: int) -> None:
        one, plain, now_us = worker(FarStore(), size, "30/m"), far_of(FarStore(), "30/m"), NOW
        for cost, later_us in calls:
            now_us += later_us
            assert figures(one, cost, now_us, "30/m") == figures(plain, cost, now_us, "30/m")

    def test_are_too_high_by_what_others_took_since(self, store: FarStore) -> None:
        one, other = worker(store), worker(store)
        assert [figures(one, 1).remaining, figures(other, 1).remaining] == [99, 89]
        assert [figures(one, 1).remaining, figures(other, 1).remaining] == [98, 88]
        # 96 are left in all. The next trip tells, but for the eight that the other one has in hand.
        assert [figures(one, 1).remaining for _ in range(9)] == [97, 96, 95, 94, 93, 92, 91, 90, 79]

    def test_of_a_denial_count_what_is_in_hand_as_left(self, store: FarStore) -> None:
        one = worker(store)
        figures(one, 1)
        far_of(store).take("u", 88, NOW)  # two are left there
        found = figures(one, 12)
        assert (found.allowed, found.remaining, found.retry_after_us) == (False, 11, MINUTE)
        assert figures(one, 11).allowed

    def test_of_counts_that_were_cleared_elsewhere_are_no_more_than_the_limit(self, store: FarStore) -> None:
        one = worker(store)
        figures(one, 1)
        store.clear_caller("rl", "u")
        assert figures(one, 12).remaining == 88
        assert figures(one, 9).remaining <= 88


Step = tuple[str, int, int]


async def passed() -> None:
    """Lets every task do what it can."""
    for _ in range(6):
        await asyncio.sleep(0)


class World:
    """Workers and their calls, whose replies arrive, fail or are no longer waited for in any order."""

    def __init__(self, many: int, size: int, limit: int) -> None:
        self.store = FarStore()
        self.size, self.rate = size, f"{limit}/m"
        self.workers = [worker(self.store, size, self.rate) for _ in range(many)]
        self.now_us = NOW
        self.calls: list[tuple[asyncio.Task[tuple[bool, Any, int]], int, int]] = []
        self.admitted: Counter[int] = Counter()
        self.lost: Counter[int] = Counter()
        self.held: list[tuple[asyncio.Future[None], int]] = []
        self.store.held = self.held

    async def run(self, steps: list[Step]) -> None:
        for what, which, cost in steps:
            await getattr(self, what)(which, cost)
            await passed()
        await self.drained()
        for task, cost, window in self.calls:
            if task.cancelled() or task.exception():
                self.lost[window] += cost
            elif task.result()[0]:
                self.admitted[window] += cost

    async def asked(self, which: int, cost: int) -> None:
        one = self.workers[which % len(self.workers)]
        self.calls.append((asyncio.ensure_future(one.atake("u", cost, self.now_us)), cost, self.window))

    async def asked_by_a_thread(self, which: int, cost: int) -> None:
        if self.workers[which % len(self.workers)].take("u", cost, self.now_us)[0]:
            self.admitted[self.window] += cost

    async def answered(self, which: int, cost: int) -> None:
        if self.held:
            await self.store.land(which % len(self.held))

    async def failed(self, which: int, cost: int) -> None:
        if self.held:
            reply, units = self.held.pop(which % len(self.held))
            if not reply.done():
                reply.set_exception(StoreError("the reply was lost"))
                self.lost[self.window] += units

    async def cancelled(self, which: int, cost: int) -> None:
        if self.calls:
            self.calls[which % len(self.calls)][0].cancel()

    async def later(self, which: int, cost: int) -> None:
        """The next window, once the last one's replies have arrived: only so is it known in which one they were lost."""
        await self.drained()
        self.now_us += MINUTE

    async def drained(self) -> None:
        while self.held:
            await self.store.land()

    @property
    def window(self) -> int:
        return self.now_us // MINUTE


def steps(*names: str) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 9), COSTS), max_size=80)


class TestWorkers:
    @given(steps("asked", "asked", "asked_by_a_thread", "answered", "later"), *(st.integers(2, n) for n in (4, 8, 60)))
    def test_never_let_through_too_much_and_strand_no_more_than_is_promised(
        self, done: list[Step], many: int, size: int, limit: int
    ) -> None:
        world = World(many, size, limit)
        asyncio.run(world.run(done))
        for window in range(NOW // MINUTE, world.window + 1):
            assert world.admitted[window] <= world.store.given[window] <= limit
            assert world.store.given[window] - world.admitted[window] <= many * (size - 1)
        stranded = sum(in_hand(one, now_us=world.now_us) for one in world.workers)
        assert world.admitted[world.window] + stranded == world.store.given[world.window]

    @given(
        steps("asked", "asked", "answered", "failed", "cancelled", "later"), *(st.integers(2, n) for n in (4, 8, 60))
    )
    def test_lose_no_more_than_calls_that_were_cancelled_and_replies_that_were_lost(
        self, done: list[Step], many: int, size: int, limit: int
    ) -> None:
        world = World(many, size, limit)
        asyncio.run(world.run(done))
        for window in range(NOW // MINUTE, world.window + 1):
            assert world.admitted[window] <= world.store.given[window] <= limit
            assert world.store.given[window] - world.admitted[window] <= many * (size - 1) + world.lost[window]
        stranded = sum(in_hand(one, now_us=world.now_us) for one in world.workers)
        assert world.admitted[world.window] + stranded <= world.store.given[world.window]

    @given(st.lists(st.tuples(st.integers(0, 3), COSTS), max_size=80), st.integers(2, 8), st.integers(1, 60))
    def test_refuse_only_what_is_neither_in_hand_nor_in_the_store(
        self, calls: list[tuple[int, int]], size: int, limit: int
    ) -> None:
        store, rate = FarStore(), f"{limit}/m"
        workers, held = [worker(store, size, rate) for _ in range(4)], [0] * 4
        for which, cost in calls:
            before = store.used(far_of(store, rate), "u", NOW)
            passes, _, _ = workers[which].take("u", cost, NOW)
            held[which] += store.used(far_of(store, rate), "u", NOW) - before - cost * passes
            assert 0 <= held[which] < size
            assert passes or cost > held[which] + limit - before


class TestTasks:
    @pytest.mark.parametrize(("tasks", "trips"), [(10, [10]), (11, [10, 10]), (60, [10, 50]), (100, [10, 90])])
    async def test_at_once_wait_for_one_lease_and_the_next_one_is_for_all(
        self, tasks: int, trips: list[int], store: FarStore
    ) -> None:
        one = worker(store)
        found = await asyncio.gather(*(one.atake("u", 1, NOW) for _ in range(tasks)))
        assert all(passes for passes, _, _ in found)
        assert store.trips == trips
        assert in_hand(one) == -tasks % 10

    async def test_take_a_smaller_lease_if_there_is_none_for_all(self, store: FarStore) -> None:
        one = worker(store)
        far_of(store).take("u", 70, NOW)
        found = await asyncio.gather(*(one.atake("u", 1, NOW) for _ in range(40)))
        assert sum(passes for passes, _, _ in found) == 30
        assert store.trips == [70, 10, 10, *(1 for _ in range(20))]  # of which ten were refused

    async def test_whose_lease_for_all_is_refused_go_one_by_one(self, store: FarStore) -> None:
        one, store.held = worker(store), []
        asked = [asyncio.ensure_future(one.atake("u", 1, NOW)) for _ in range(40)]
        await passed()
        far_of(store).take("u", 75, NOW)
        await store.land()
        store.held, held = None, store.held
        for reply, _ in held:
            reply.set_result(None)
        assert sum([passes for passes, _, _ in await asyncio.gather(*asked)]) == 25
        assert store.trips == [10, 75, 30, *(1 for _ in range(30))]

    async def test_that_are_cancelled_while_they_wait_harm_no_other(self, store: FarStore) -> None:
        one, store.held = worker(store), []
        asked = [asyncio.ensure_future(one.atake("u", 1, NOW)) for _ in range(4)]
        await passed()
        for task in asked[:3]:
            task.cancel()
        await store.land()
        assert (await asked[3])[0]
        assert [task.cancelled() for task in asked] == [True] * 3 + [False]
        assert in_hand(one) == 8  # the call that took the lease is paid for

    async def test_all_hear_of_a_failure_and_the_next_call_tries_anew(self, store: FarStore) -> None:
        one, store.error = worker(store), StoreError("down")
        found = await asyncio.gather(*(one.atake("u", 1, NOW) for _ in range(5)), return_exceptions=True)
        assert found == [store.error] * 5
        assert store.trips == [10]
        store.error = None
        assert (await one.atake("u", 1, NOW))[0]
        assert in_hand(one) == 9

    async def test_a_failure_that_nobody_waits_for_is_no_news(self, store: FarStore) -> None:
        one, store.held = worker(store), []
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        asked = asyncio.ensure_future(one.atake("u", 1, NOW))
        await passed()
        asked.cancel()
        await passed()
        reply, _ = store.held.pop()
        reply.set_exception(StoreError("the reply was lost"))
        await passed()
        del reply, asked
        gc.collect()
        assert told == []
        assert in_hand(one) == 0

    async def test_do_not_wait_for_a_lease_of_another_loop_or_thread(self, store: FarStore) -> None:
        one, store.held = worker(store), []
        asked = asyncio.ensure_future(one.atake("u", 1, NOW))
        await passed()
        assert one.take("u", 1, NOW)[0]
        assert store.trips == [10, 1]
        await store.land()
        assert (await asked)[0]
        assert in_hand(one) == 9

    def test_a_lease_that_ends_with_its_loop_is_none(self, store: FarStore) -> None:
        one, store.held = worker(store), []

        async def leave() -> None:
            asked.append(asyncio.ensure_future(one.atake("u", 1, NOW)))
            await passed()

        asked: list[asyncio.Future[Any]] = []
        asyncio.run(leave())
        assert asked[0].cancelled()
        assert one.take("u", 1, NOW)[0]
        assert store.trips == [10, 10]
        assert in_hand(one) == 9

    def test_a_lease_of_a_loop_that_was_closed_is_not_waited_for(self, store: FarStore) -> None:
        one, store.held = worker(store), []
        loop = asyncio.new_event_loop()
        asked = loop.create_task(one.atake("u", 1, NOW))
        loop.run_until_complete(asyncio.wait([asked], timeout=0))
        loop.run_until_complete(asyncio.sleep(0))
        assert store.trips == [10]
        # As asyncio.run does, but with the lease left behind: what a loop that is just closed does to it.
        (lease,) = (task for task in asyncio.all_tasks(loop) if task is not asked)
        asked.cancel()
        loop.run_until_complete(asyncio.wait([asked]))
        loop.close()
        assert one.take("u", 1, NOW)[0]
        assert store.trips == [10, 10]
        assert in_hand(one) == 9
        lease._log_destroy_pending = False  # type: ignore[attr-defined]

    async def test_a_thread_that_is_refused_finds_what_has_landed_meanwhile(self, store: FarStore) -> None:
        one, store.held = worker(store, 10, "10/m"), []
        asked = asyncio.ensure_future(one.atake("u", 1, NOW))
        await passed()
        loop = asyncio.get_running_loop()
        # What the thread hears of its trip comes later than what the loop hears of the lease.
        store.before = lambda: asyncio.run_coroutine_threadsafe(store.land(), loop).result()
        assert await asyncio.to_thread(one.take, "u", 2, NOW) == (True, (1,), NOW)
        assert (await asked)[0]
        assert in_hand(one) == 7


class TestThreads:
    def test_at_once_wait_for_one_lease(self, store: FarStore) -> None:
        one = worker(store, 8)
        led, go = threading.Event(), threading.Event()

        def first() -> None:
            if not led.is_set():
                led.set()
                go.wait()

        store.before = first
        found: list[bool] = []
        threads = [threading.Thread(target=lambda: found.append(one.take("u", 1, NOW)[0])) for _ in range(16)]
        threads[0].start()
        led.wait()
        for thread in threads[1:]:
            thread.start()
        while one.hands._hands["u"].missing < 15:
            pass
        go.set()
        for thread in threads:
            thread.join()
        assert found == [True] * 16
        assert store.trips == [8, 8]
        assert in_hand(one) == 0

    @pytest.mark.usefixtures("eager_threads")
    @pytest.mark.parametrize("size", [2, 7, 50])
    def test_are_let_through_exactly_as_often_as_the_limit_says(self, size: int, store: FarStore) -> None:
        one, barrier = worker(store, size, "300/m"), threading.Barrier(8)
        found: list[bool] = []

        def ask() -> None:
            barrier.wait()
            for _ in range(50):
                found.append(one.take("u", 1, NOW)[0])

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(found), sum(found)) == (400, 300)
        assert store.used(far_of(store, "300/m"), "u", NOW) == 300

    @pytest.mark.parametrize("error", [StoreError("down"), KeyboardInterrupt()])
    def test_hear_of_a_failure_unless_it_is_anothers_own(self, error: BaseException, store: FarStore) -> None:
        one = worker(store)
        led, go = threading.Event(), threading.Event()

        def first() -> None:
            if not led.is_set():
                led.set()
                go.wait()
                raise error

        def lead() -> None:
            with pytest.raises(type(error)):
                one.take("u", 1, NOW)

        store.before = first
        heard: list[object] = []

        def follow() -> None:
            try:
                heard.append(one.take("u", 1, NOW)[0])
            except StoreError as failure:
                heard.append(failure)

        threads = [threading.Thread(target=target) for target in (lead, follow)]
        threads[0].start()
        led.wait()
        threads[1].start()
        while one.hands._hands["u"].missing < 1:
            pass
        go.set()
        for thread in threads:
            thread.join()
        assert heard == ([error] if isinstance(error, StoreError) else [True])
        assert one.hands._hands["u"].missing == 0

    def test_do_not_wait_for_ever(self, store: FarStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(leases, "PATIENCE_S", 0)
        one = worker(store)
        led, go = threading.Event(), threading.Event()

        def first() -> None:
            if not led.is_set():
                led.set()
                go.wait()

        store.before = first
        thread = threading.Thread(target=lambda: one.take("u", 1, NOW))
        thread.start()
        led.wait()
        assert one.take("u", 1, NOW)[0]
        assert store.trips == [1]
        go.set()
        thread.join()
        assert store.trips == [1, 10]
        assert in_hand(one) == 9


class TestFailures:
    def test_what_was_in_hand_still_is(self, take: Take, store: FarStore) -> None:
        one = worker(store)
        take(one, 7)
        store.error = StoreError("down")
        with pytest.raises(StoreError):
            take(one, 4)
        assert [take(one)[0] for _ in range(3)] == [True] * 3
        with pytest.raises(StoreError):
            take(one)
        store.error = None
        assert take(one)[0]

    def test_what_is_dropped_is_lost_and_what_lands_later_lands_in_no_hand(self, store: FarStore) -> None:
        one = worker(store)
        store.before = lambda: one.hands.drop("u")
        assert one.take("u", 1, NOW)[0]
        assert in_hand(one) == 0


FORKED = """
import os, sys, threading
from ratelimit import Rate
from ratelimit.leases import Leased
from tests.core.far import Far, FarStore

one = Leased(Far(FarStore(), "rl:g", Rate(100, 60)), Rate(100, 60), 10)
assert one.take("u", 1, 0)[0]
held, done = threading.Event(), threading.Event()

def hold():
    with one.hands._lock:
        held.set()
        done.wait()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    os._exit(one.hands.spend("u", 1, 0) is not None)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
done.set()
assert one.hands.spend("u", 9, 0) is not None, "the parent lost what it had"
sys.exit(status)
"""


class TestForks:
    def test_renew_hands_and_locks(self, store: FarStore) -> None:
        one = worker(store)
        one.take("u", 1, NOW)
        one.hands._lock.acquire()
        leases._renew_hands()
        assert in_hand(one) == 0

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
    def test_a_child_does_not_spend_what_the_parent_has_in_hand(self) -> None:
        found = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert found.returncode == 0, found.stderr
