"""A cap on what is open at once: who gets a place, how long it is kept, and what becomes of it when things go wrong."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ratelimit import ConfigurationError, Decision, Identity, Limiter, MemoryStore, StoreError, connections
from ratelimit.connections import ConnectionCap
from ratelimit.holds import Hold
from ratelimit.rates import AtOnce
from ratelimit.renewals import Renewals
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock, isolated
from tests.core.far_places import FarPlaces, FarPlacesStore

pytestmark = pytest.mark.usefixtures("renewed_by_hand")
ALICE, BOB = Identity(user="1", ip="203.0.113.7"), Identity(user="2", ip="203.0.113.7")
DOWN = StoreError("down")


@pytest.fixture
def far() -> FarPlacesStore:
    return FarPlacesStore()


@pytest.fixture
def places(far: FarPlacesStore) -> FarPlaces:
    found: Any = far.places
    return found


@pytest.fixture
def cap(far: FarPlacesStore, fake_clock: FakeClock) -> ConnectionCap:
    """Two at once, on a store that is far away."""
    return ConnectionCap(2, limiter=Limiter(far, clock=fake_clock))


def renewals(cap: ConnectionCap) -> Renewals[Hold]:
    return cap._loops[asyncio.get_running_loop()]


async def one_round(cap: ConnectionCap) -> None:
    """As if a third of a lease had passed."""
    for _ in range(10):
        await renewals(cap).turn()


class TestWhoGetsAPlace:
    async def test_as_many_as_there_may_be_at_once(self, limiter: Limiter) -> None:
        cap = ConnectionCap(2)
        async with cap.hold(ALICE) as first, cap.hold(ALICE) as second:
            assert (first.allowed, first.remaining, second.allowed, second.remaining) == (True, 1, True, 0)
            async with cap.hold(ALICE) as third:
                assert not third
            async with cap.hold(BOB) as another:
                assert another
            assert (cap.taken(ALICE), await cap.ataken(ALICE), cap.taken(BOB), cap.held) == (2, 2, 0, 2)
        assert (cap.taken(ALICE), cap.held) == (0, 0)

    async def test_after_ten_refusals_two_are_open_and_one_that_leaves_admits_one(self, limiter: Limiter) -> None:
        cap = ConnectionCap(2)
        first, second = cap.hold(ALICE), cap.hold(ALICE)
        async with second:
            async with first:
                for _ in range(10):
                    async with cap.hold(ALICE) as refused:
                        assert not refused
                assert cap.taken(ALICE) == 2
            async with cap.hold(ALICE) as admitted, cap.hold(ALICE) as one_more:
                assert (admitted.allowed, one_more.allowed, cap.taken(ALICE)) == (True, False, 2)

    async def test_a_refusal_in_figures_and_words(self, limiter: Limiter) -> None:
        cap = ConnectionCap(1, name="chats")
        async with cap.hold(ALICE), cap.hold(ALICE) as refused:
            assert refused.exceeded_message() == "Limit exceeded: Max 1 connection at once. Please try again later."
            assert (refused.rule, refused.key, refused.limit, refused.remaining) == ("chats", "user:1", 1, 0)
            # Nobody knows when somebody will leave.
            assert (refused.retry_after, refused.retry_after_seconds, refused.reset_after) == (None, None, 60.0)
            assert refused.headers() == {}
            assert refused.headers("ietf") == {
                "RateLimit-Policy": '"chats";q=1;qu="concurrent-requests"',
                "RateLimit": '"chats";r=0',
            }
            assert refused.headers("x")["X-RateLimit-Remaining"] == "0"
            assert (str(refused.rate), AtOnce(5, 60).describe()) == ("1 at once", "5 connections at once")
            assert not refused.degraded

    async def test_a_refusal_is_logged(self, limiter: Limiter, caplog: pytest.LogCaptureFixture) -> None:
        cap = ConnectionCap(0, protocol="websocket")
        async with cap.hold(ALICE):
            pass
        assert [record.getMessage() for record in caplog.records] == [
            "rate limit exceeded: rule=connections key=user:1 rate=0 at once protocol=websocket"
        ]

    async def test_caps_of_one_name_share_and_others_do_not(self, limiter: Limiter) -> None:
        one, same, other = ConnectionCap(1), ConnectionCap(1), ConnectionCap(1, name="uploads")
        async with one.hold(ALICE), same.hold(ALICE) as shared, other.hold(ALICE) as own:
            assert (shared.allowed, own.allowed) == (False, True)

    async def test_the_strategy_says_who_is_one_caller(self, limiter: Limiter) -> None:
        cap = ConnectionCap(1, key="ip")
        async with cap.hold(ALICE), cap.hold(BOB) as same_address:
            assert (same_address.allowed, same_address.key) == (False, "ip:203.0.113.7")
        async with cap.hold("room:1") as by_text, cap.hold("room:2") as other:
            assert (by_text.allowed, other.allowed) == (True, True)

    async def test_how_many_may_depend_on_the_caller(self, limiter: Limiter) -> None:
        cap = ConnectionCap(lambda who: {"1": 2, "2": None}.get(who.user or "", 0))
        async with AsyncExitStack() as open_:
            assert [bool(await open_.enter_async_context(cap.hold(ALICE))) for _ in range(3)] == [True, True, False]
            assert [bool(await open_.enter_async_context(cap.hold(BOB))) for _ in range(50)] == [True] * 50
            assert not await open_.enter_async_context(cap.hold("somebody"))
            assert (cap.taken(ALICE), cap.taken(BOB), cap.held) == (2, 0, 2)

    async def test_nothing_is_capped_when_limits_are_off(self, fake_clock: FakeClock) -> None:
        with isolated(clock=fake_clock, disable=True):
            async with ConnectionCap(0).hold(ALICE) as decision:
                assert (decision.allowed, decision.counted) == (True, False)

    async def test_a_place_is_one_trip_and_so_is_leaving(self, cap: ConnectionCap, places: FarPlaces) -> None:
        async with cap.hold(ALICE):
            assert places.trips == ["hold 1"]
        assert places.trips == ["hold 1", "release"]

    async def test_clearing_a_callers_counts_leaves_what_is_open(self, limiter: Limiter) -> None:
        cap = ConnectionCap(1)
        async with cap.hold(ALICE):
            limiter.clear(None, ALICE)
            assert cap.taken(ALICE) == 1

    async def test_200_at_once(self, limiter: Limiter) -> None:
        cap, most, now, leave = ConnectionCap(10), 0, 0, asyncio.Event()

        async def one() -> bool:
            nonlocal most, now
            async with cap.hold(ALICE) as decision:
                if decision:
                    now += 1
                    most = max(most, now)
                    await leave.wait()
                    now -= 1
                return decision.allowed

        tasks = [asyncio.create_task(one()) for _ in range(200)]
        for _ in range(5):
            await asyncio.sleep(0)
        leave.set()
        assert (await asyncio.gather(*tasks)).count(True) == 10
        assert (most, cap.taken(ALICE)) == (10, 0)


class TestLeaving:
    async def test_whoever_fails_or_is_cancelled_leaves_once(self, cap: ConnectionCap, places: FarPlaces) -> None:
        with pytest.raises(LookupError):
            async with cap.hold(ALICE):
                raise LookupError

        async def stay() -> None:
            async with cap.hold(ALICE):
                await asyncio.Event().wait()

        staying = asyncio.create_task(stay())
        await asyncio.sleep(0)
        assert cap.taken(ALICE) == 1
        staying.cancel()
        await asyncio.wait([staying])
        assert cap.taken(ALICE) == 0
        assert places.trips.count("release") == 2

    async def test_whoever_is_cancelled_while_it_asks_holds_nothing(
        self, cap: ConnectionCap, places: FarPlaces
    ) -> None:
        places.hung = asyncio.Event()
        asking = asyncio.create_task(cap.hold(ALICE).__aenter__())
        await asyncio.sleep(0)
        assert cap.taken(ALICE) == 1  # the store has done it, and nobody heard of it
        places.hung = None
        asking.cancel()
        await asyncio.wait([asking])
        await asyncio.gather(*cap._releases)
        assert (cap.taken(ALICE), cap.held) == (0, 0)

    async def test_whoever_is_cancelled_while_it_leaves_has_left(self, cap: ConnectionCap, places: FarPlaces) -> None:
        hold = cap.hold(ALICE)
        await hold.__aenter__()
        places.slow = asyncio.Event()
        leaving = asyncio.create_task(hold.__aexit__(None, None, None))
        for _ in range(3):
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        assert (leaving.cancelled(), cap.taken(ALICE)) == (True, 1)
        places.slow.set()
        await asyncio.gather(*cap._releases)
        assert (cap.taken(ALICE), cap.held) == (0, 0)

    async def test_a_hold_is_entered_once(self, limiter: Limiter) -> None:
        hold = ConnectionCap(2).hold(ALICE)
        async with hold:
            with pytest.raises(RuntimeError, match="entered once"):
                await hold.__aenter__()


class TestRenewal:
    async def test_each_lease_is_renewed_once_in_a_third_of_it(
        self, cap: ConnectionCap, places: FarPlaces, fake_clock: FakeClock
    ) -> None:
        async with cap.hold(ALICE), cap.hold(BOB):
            assert renewals(cap).pause == 2.0
            for _ in range(30):
                fake_clock.advance(20)
                places.trips.clear()
                await one_round(cap)
                assert places.trips == ["hold 1", "hold 1"]
            assert (cap.taken(ALICE), cap.taken(BOB)) == (1, 1)

    async def test_many_leases_are_renewed_a_few_hundred_at_a_time_all_through_half_a_round(
        self, cap: ConnectionCap, places: FarPlaces
    ) -> None:
        async with AsyncExitStack() as open_:
            for n in range(2600):
                await open_.enter_async_context(cap.hold(f"user:{n}"))
            places.trips.clear()
            await one_round(cap)
            assert places.trips == ["hold 500", "hold 20"] * 5
            # What is out is asked once each time, and the rest is not asked in vain.
            places.error = DOWN
            places.trips.clear()
            await one_round(cap)
            await one_round(cap)
            assert places.trips == ["hold 500"] * 15
            places.error = None
            places.trips.clear()
            await renewals(cap).turn()
            assert places.trips == ["hold 500"] * 5 + ["hold 100"]

    async def test_a_new_lease_waits_for_half_a_round_or_more(self, cap: ConnectionCap, places: FarPlaces) -> None:
        async with cap.hold(ALICE):
            await renewals(cap).turn()
            async with cap.hold(BOB):
                places.trips.clear()
                for _ in range(8):
                    await renewals(cap).turn()
                assert places.trips == []
                await renewals(cap).turn()
                await renewals(cap).turn()
                assert places.trips == ["hold 1", "hold 1"]

    async def test_a_process_that_crashed_gives_its_places_back_after_a_lease(self, fake_clock: FakeClock) -> None:
        store = MemoryStore()
        crashed, alive = (ConnectionCap(1, limiter=Limiter(store, clock=fake_clock)) for _ in range(2))
        await crashed.hold(ALICE).__aenter__()
        renewals(crashed)._task.cancel()  # type: ignore[union-attr]
        fake_clock.advance(59.999999)
        async with alive.hold(ALICE) as before:
            assert not before
        fake_clock.advance(0.000001)
        async with alive.hold(ALICE) as after:
            assert after

    async def test_a_lease_that_was_lost_is_taken_again_if_there_is_a_place(
        self, cap: ConnectionCap, fake_clock: FakeClock
    ) -> None:
        hold = cap.hold(ALICE)
        async with hold:
            fake_clock.advance(3600)
            assert cap.taken(ALICE) == 0
            await one_round(cap)
            assert (cap.taken(ALICE), hold.lost) == (1, False)

    async def test_a_lease_that_was_lost_to_others_is_told_once_and_tried_again(
        self, far: FarPlacesStore, fake_clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        slept, awake = (ConnectionCap(1, limiter=Limiter(far, clock=fake_clock)) for _ in range(2))
        told: list[str] = []
        hold = slept.hold(ALICE, on_lost=lambda: told.append("lost"))
        async with hold:
            fake_clock.advance(60)
            async with awake.hold(ALICE) as decision:
                assert decision
                await one_round(slept)
                await one_round(slept)
                assert (hold.lost, told, slept.taken(ALICE)) == (True, ["lost"], 1)
            await one_round(slept)
            assert (hold.lost, slept.taken(ALICE)) == (False, 1)
        assert slept.taken(ALICE) == 0
        assert [record.getMessage() for record in caplog.records] == [
            "rate limit place lost, others have taken all: rule=connections key=user:1"
        ]

    async def test_leaving_without_a_place_takes_nobodys(self, far: FarPlacesStore, fake_clock: FakeClock) -> None:
        slept, awake = (ConnectionCap(1, limiter=Limiter(far, clock=fake_clock)) for _ in range(2))
        hold = slept.hold(ALICE)
        await hold.__aenter__()
        fake_clock.advance(60)
        async with awake.hold(ALICE):
            await one_round(slept)
            await hold.__aexit__(None, None, None)
            assert awake.taken(ALICE) == 1

    async def test_what_a_holder_does_when_it_is_told_harms_no_other(
        self, far: FarPlacesStore, fake_clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        slept, awake = (ConnectionCap(2, limiter=Limiter(far, clock=fake_clock)) for _ in range(2))
        told: list[str] = []

        def fail() -> None:
            raise LookupError("in the application")

        async with slept.hold(ALICE, on_lost=fail), slept.hold(ALICE, on_lost=lambda: told.append("lost")):
            fake_clock.advance(60)
            async with awake.hold(ALICE), awake.hold(ALICE):
                await one_round(slept)
        assert told == ["lost"]
        assert "on_lost failed: rule=connections" in caplog.text

    async def test_whoever_leaves_while_it_is_renewed_has_left(self, cap: ConnectionCap, places: FarPlaces) -> None:
        hold = cap.hold(ALICE)
        await hold.__aenter__()
        places.hung = hung = asyncio.Event()
        turns = asyncio.create_task(one_round(cap))
        await asyncio.sleep(0)
        places.hung = None
        await hold.__aexit__(None, None, None)
        await places.ahold([hold.claim], cap.limiter.now())  # the renewal, which overtook nothing, arrives
        hung.set()
        await turns
        await asyncio.gather(*cap._releases)
        assert cap.taken(ALICE) == 0

    async def test_one_task_renews_while_something_is_held(
        self, cap: ConnectionCap, places: FarPlaces, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pauses: list[float] = []
        wake: list[asyncio.Future[None]] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            wake.append(asyncio.get_running_loop().create_future())
            await wake[-1]

        monkeypatch.setattr("ratelimit.renewals.sleep", sleep)
        async with cap.hold(ALICE), cap.hold(BOB):
            task = renewals(cap)._task
            for _ in range(10):
                await asyncio.sleep(0)
                wake[-1].set_result(None)
            await asyncio.sleep(0)
            assert pauses == [2.0] * 11
            assert places.trips[2:] == ["hold 1", "hold 1"]
        assert task is not None
        await asyncio.wait([task])
        assert task.cancelled()
        assert renewals(cap)._task is None
        async with cap.hold(ALICE):
            assert renewals(cap)._task is not None

    async def test_a_mistake_while_renewing_is_not_the_end_of_it(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        asked: list[str] = []
        wake: list[asyncio.Future[None]] = []

        async def sleep(seconds: float) -> None:
            wake.append(asyncio.get_running_loop().create_future())
            await wake[-1]

        async def renew(leases: Any) -> Any:
            asked.extend(leases)
            raise LookupError("a mistake")

        monkeypatch.setattr("ratelimit.renewals.sleep", sleep)
        kept = Renewals[str](renew, 30)
        kept.add("a")
        for _ in range(20):
            await asyncio.sleep(0)
            wake[-1].set_result(None)
        await asyncio.sleep(0)
        assert (len(kept), asked) == (1, ["a", "a"])
        assert "leases could not be renewed" in caplog.text
        kept.discard("a")
        kept.discard("a")
        assert len(kept) == 0

    def test_every_loop_renews_its_own(self, far: FarPlacesStore, fake_clock: FakeClock) -> None:
        cap = ConnectionCap(3, limiter=Limiter(far, clock=fake_clock))

        async def hold() -> int:
            async with cap.hold(ALICE):
                return len(cap._loops)

        assert [asyncio.run(hold()) for _ in range(3)] == [1, 1, 1]  # loops that are closed are forgotten
        together = threading.Barrier(2)
        found: list[int] = []

        async def hold_together() -> None:
            async with cap.hold(ALICE):
                together.wait()
                found.append(cap.taken(ALICE))
                together.wait()

        threads = [threading.Thread(target=asyncio.run, args=(hold_together(),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [2, 2]
        assert (cap.taken(ALICE), cap.held) == (0, 0)


class TestOutage:
    @pytest.mark.parametrize(
        ("on_outage", "fail_open", "admitted"),
        [
            ("open", False, [True] * 4),
            ("closed", True, [False] * 4),
            ("local", True, [True, True, False, False]),
            (None, True, [True] * 4),
            (None, False, [False] * 4),
        ],
    )
    async def test_the_policy_decides(
        self, on_outage: str | None, fail_open: bool, admitted: list[bool], far: FarPlacesStore, places: FarPlaces
    ) -> None:
        limiter = Limiter(far, settings=Settings(fail_open=fail_open), clock=FakeClock())
        cap = ConnectionCap(2, on_outage=on_outage, limiter=limiter)
        places.error = DOWN
        async with AsyncExitStack() as open_:
            decisions = [await open_.enter_async_context(cap.hold(ALICE)) for _ in range(4)]
            assert [decision.allowed for decision in decisions] == admitted
            assert all(decision.degraded for decision in decisions)
            assert {d.retry_after for d in decisions if not d} <= {1.0}
            assert cap.held == admitted.count(True)
        assert cap.held == 0

    async def test_what_is_open_counts_when_the_process_counts_for_itself(
        self, far: FarPlacesStore, places: FarPlaces, fake_clock: FakeClock
    ) -> None:
        cap = ConnectionCap(2, on_outage="local", limiter=Limiter(far, clock=fake_clock))
        async with cap.hold(ALICE), cap.hold(ALICE):
            places.error = DOWN
            async with cap.hold(ALICE) as third, cap.hold(BOB) as other:
                assert (third.allowed, other.allowed, other.remaining) == (False, True, 1)

    async def test_none_is_none_even_then(self, far: FarPlacesStore, places: FarPlaces) -> None:
        places.error = DOWN
        async with ConnectionCap(0, on_outage="open", limiter=Limiter(far)).hold(ALICE) as decision:
            assert not decision

    async def test_who_was_let_in_meanwhile_is_counted_when_the_store_is_back(
        self, cap: ConnectionCap, places: FarPlaces
    ) -> None:
        places.error = DOWN
        holds = [cap.hold(ALICE) for _ in range(3)]
        for hold in holds:
            assert await hold.__aenter__()
        await one_round(cap)
        places.error = None
        await one_round(cap)
        assert cap.taken(ALICE) == 2
        assert [hold.lost for hold in holds] == [False, False, True]
        async with cap.hold(ALICE) as one_more:
            assert not one_more
        for hold in holds:
            await hold.__aexit__(None, None, None)
        assert (cap.taken(ALICE), cap.held) == (0, 0)

    async def test_what_could_not_be_renewed_is_tried_at_the_next_turn(
        self, cap: ConnectionCap, places: FarPlaces, fake_clock: FakeClock
    ) -> None:
        async with cap.hold(ALICE):
            places.error = DOWN
            await one_round(cap)
            places.error = None
            places.trips.clear()
            await renewals(cap).turn()
            assert places.trips == ["hold 1"]

    async def test_whoever_left_while_it_could_not_be_renewed_is_not_tried_again(
        self, cap: ConnectionCap, places: FarPlaces
    ) -> None:
        async with cap.hold(ALICE):
            hold = cap.hold(BOB)
            await hold.__aenter__()
            places.hung, places.lost = asyncio.Event(), DOWN
            turns = asyncio.create_task(one_round(cap))
            await asyncio.sleep(0)
            hung, places.hung = places.hung, None
            await hold.__aexit__(None, None, None)
            hung.set()
            await turns
            assert len(renewals(cap)) == 1

    async def test_a_place_that_could_not_be_given_back_is_free_after_a_lease(
        self, cap: ConnectionCap, places: FarPlaces, fake_clock: FakeClock
    ) -> None:
        async with cap.hold(ALICE):
            places.error = DOWN
        places.error = None
        assert cap.taken(ALICE) == 1
        fake_clock.advance(60)
        assert cap.taken(ALICE) == 0

    async def test_an_outage_is_logged_once_and_so_is_its_end(
        self, cap: ConnectionCap, places: FarPlaces, caplog: pytest.LogCaptureFixture
    ) -> None:
        places.error = DOWN
        for _ in range(3):
            async with cap.hold(ALICE):
                pass
        places.error = None
        async with cap.hold(ALICE):
            pass
        assert [(r.levelno, r.getMessage().partition(";")[0]) for r in caplog.records] == [
            (logging.ERROR, "rate limit store failed"),
            (logging.WARNING, "rate limit store answers again"),
        ]

    def test_a_gauge_that_cannot_be_read_is_an_error(self, cap: ConnectionCap, places: FarPlaces) -> None:
        places.error = DOWN
        with pytest.raises(StoreError):
            cap.taken(ALICE)


class TestMistakes:
    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"most": -1}, "most -1"),
            ({"most": True}, "most True"),
            ({"most": "5"}, "most '5'"),
            ({"most": 1_000_001}, "most 1000001"),
            ({"name": ""}, "name ''"),
            ({"name": 5}, "name 5"),
            ({"key": "usr"}, "unknown key strategy 'usr'"),
            ({"lease": 0}, "lease 0"),
            ({"lease": 1.5}, "lease 1.5"),
            ({"lease": 86_401}, "lease 86401"),
            ({"on_outage": "opne"}, "on_outage 'opne' is not one of open, closed, local"),
        ],
    )
    def test_are_named_when_the_cap_is_made(self, options: dict[str, Any], told: str) -> None:
        with pytest.raises(ConfigurationError, match=told):
            ConnectionCap(**options)

    def test_a_coroutine_function_gives_no_number(self) -> None:
        async def most(identity: Identity) -> int:
            return 5

        with pytest.raises(ConfigurationError, match="coroutine function"):
            ConnectionCap(most)  # type: ignore[arg-type]

    def test_what_a_function_gives_is_checked_too(self, limiter: Limiter) -> None:
        cap = ConnectionCap(lambda who: "5")  # type: ignore[arg-type, return-value]
        with pytest.raises(ConfigurationError, match="most '5'"):
            cap.hold(ALICE)

    def test_what_is_no_caller_is_refused(self, limiter: Limiter) -> None:
        with pytest.raises(ConfigurationError, match="neither an Identity nor a text"):
            ConnectionCap().hold(None)  # type: ignore[arg-type]

    async def test_a_store_without_places_says_so(self, fake_clock: FakeClock) -> None:
        class Own:
            holds = frozenset({"fixed"})

        cap = ConnectionCap(limiter=Limiter(Own(), clock=fake_clock))  # type: ignore[arg-type]
        for ask in (cap.hold(ALICE).__aenter__, lambda: cap.ataken(ALICE)):
            with pytest.raises(ConfigurationError, match=r"Own keeps no places; use MemoryStore, RedisStore"):
                await ask()

    async def test_a_store_that_cannot_be_exact_is_no_outage(self, cap: ConnectionCap, places: FarPlaces) -> None:
        places.error = ConfigurationError("two could take one")
        with pytest.raises(ConfigurationError, match="two could take one"):
            await cap.hold(ALICE).__aenter__()


async def test_what_runs_in_a_forked_child_forgets_what_is_held(limiter: Limiter) -> None:
    cap = ConnectionCap(1)
    hold = cap.hold(ALICE)
    await hold.__aenter__()
    renewals(cap).discard(hold)
    lock = cap._lock
    connections._begin_anew()
    assert (cap.held, cap._loops, cap._lock is lock) == (0, {}, False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
async def test_a_forked_child_holds_nothing_of_its_parent(limiter: Limiter) -> None:
    cap = ConnectionCap(1, on_outage="local")
    async with cap.hold(ALICE):
        with cap._lock, limiter.store.places._lock:  # type: ignore[attr-defined]
            child = os.fork()
            if child == 0:
                held = cap.held + len(cap._loops) + cap._lock.locked()
                os._exit(held)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert cap.held == 1


def test_decisions_are_pickled(limiter: Limiter) -> None:
    import pickle

    async def refused() -> Decision:
        async with ConnectionCap(0).hold(ALICE) as decision:
            return decision

    found = pickle.loads(pickle.dumps(asyncio.run(refused())))
    assert (found.allowed, found.rate, found.describe()) == (False, AtOnce(0, 60), "Max 0 connections at once")
