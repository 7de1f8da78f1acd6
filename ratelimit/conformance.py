"""pytest fixtures, and the suite that every store has to pass. Import them from `ratelimit.testing`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ratelimit.decision import Decision
from ratelimit.engine import Limiter
from ratelimit.outcome import Charge
from ratelimit.plan import Call
from ratelimit.rates import Rate
from ratelimit.stores.base import Store
from ratelimit.stores.places import Claim, Claimed, HasPlaces, Places, Room
from ratelimit.testing import FakeClock, isolated


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock for one test."""
    return FakeClock()


@pytest.fixture
def limiter(fake_clock: FakeClock) -> Iterator[Limiter]:
    """An isolated limiter on memory and `fake_clock`, the process's one while the test runs."""
    with isolated(clock=fake_clock) as limiter:
        yield limiter


class Driver:
    """Drives a limiter in its sync or its async form, so that one test covers both."""

    def __init__(self, limiter: Limiter, mode: str, runner: asyncio.Runner) -> None:
        self.limiter = limiter
        self.mode = mode
        self._runner = runner

    def check(self, rule: Any, identity: str, **options: Any) -> Decision:
        """`check` or `acheck`."""
        decision: Decision = self._either(self.limiter.check, self.limiter.acheck, rule, identity, **options)
        return decision

    def peek(self, rule: Any, identity: str, **options: Any) -> Decision:
        """`peek` or `apeek`."""
        decision: Decision = self._either(self.limiter.peek, self.limiter.apeek, rule, identity, **options)
        return decision

    def check_many(self, calls: list[Call]) -> Decision:
        """`check_many` or `acheck_many`."""
        decision: Decision = self._either(self.limiter.check_many, self.limiter.acheck_many, calls)
        return decision

    def clear(self, rule: Any, identity: str) -> None:
        """`clear` or `aclear`."""
        self._either(self.limiter.clear, self.limiter.aclear, rule, identity)

    def allowed(self, times: int, rule: Any, identity: str, **options: Any) -> int:
        """How many of so many checks in a row passed."""
        return sum(bool(self.check(rule, identity, **options)) for _ in range(times))

    def _either(self, sync: Callable[..., Any], aio: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return sync(*args, **options) if self.mode == "sync" else self._runner.run(aio(*args, **options))


@pytest.fixture(params=["sync", "async"])
def driver(request: pytest.FixtureRequest, store: Store, fake_clock: FakeClock) -> Iterator[Driver]:
    """A driver of a limiter on the fixture `store`."""
    limiter = Limiter(store, clock=fake_clock)
    with asyncio.Runner() as runner:
        yield Driver(limiter, request.param, runner)
        runner.run(limiter.aclose())


class Holder:
    """Asks for the places of one store, from an event loop that lasts for a test."""

    def __init__(self, places: Places, clock: FakeClock, runner: asyncio.Runner) -> None:
        self.places = places
        self.run = runner.run
        self._clock = clock

    def hold(self, room: Room, *members: str) -> list[Claimed]:
        """What becomes of these members' claims, made together."""
        return self.run(self._hold([Claim(room, member) for member in members]))

    def hold_all(self, *claims: Claim) -> list[Claimed]:
        """The same for claims on several rooms."""
        return self.run(self._hold(list(claims)))

    def release(self, room: Room, member: str) -> None:
        """Gives a place back."""
        self.run(self._release(Claim(room, member)))

    def count(self, room: Room) -> int:
        """How many are taken, as a thread and an event loop see it."""
        counted = self.places.count(room, self._clock())
        assert self.run(self._count(room)) == counted
        return counted

    async def _hold(self, claims: list[Claim]) -> list[Claimed]:
        return await self.places.ahold(claims, self._clock())

    async def _release(self, claim: Claim) -> None:
        await self.places.arelease(claim)

    async def _count(self, room: Room) -> int:
        return await self.places.acount(room, self._clock())


@pytest.fixture
def holder(store: Store, fake_clock: FakeClock) -> Iterator[Holder]:
    """Asks for places of the fixture `store`, which must keep some."""
    assert isinstance(store, HasPlaces)
    with asyncio.Runner() as runner:
        yield Holder(store.places, fake_clock, runner)
        runner.run(store.aclose())


TWO = Room("rl:connections~60p:{user:1}", 2, 60_000_000)
FIVE_A_MINUTE = Rate.parse("5/m")
CALLERS = (
    *("u1", "{u1}", "a{b}c", "{}x", "}x{", "", "a b", "a\x00b", "a\nb", "%7Bu1%7D", "~"),
    *("é" * 200, "x" * 300, "x" * 299 + "y"),
)
"""Callers that trip up key builders; all different."""


class StoreConformance:
    """What every store must do, sync and async. Subclass it with a fixture `store` that gives an empty store.

    Set `atomic = False` for a medium that cannot count exactly under concurrency, and `clears_callers = False` for one
    that cannot find a caller's keys; the tests of these are then left out. A store that keeps places passes
    `PlacesConformance` too.
    """

    atomic = True
    clears_callers = True

    def test_of_n_plus_one_calls_n_pass(self, driver: Driver) -> None:
        assert [bool(driver.check(FIVE_A_MINUTE, "u")) for _ in range(7)] == [True] * 5 + [False] * 2

    def test_figures_are_exact(self, driver: Driver, fake_clock: FakeClock) -> None:
        fake_clock.advance(12.25)
        first = driver.check(FIVE_A_MINUTE, "u", cost=4)
        assert (first.limit, first.remaining, first.retry_after, first.reset_after) == (5, 1, 0.0, 47.75)
        denied = driver.check(FIVE_A_MINUTE, "u", cost=2)
        assert (denied.allowed, denied.remaining, denied.retry_after, denied.reset_after) == (False, 1, 47.75, 47.75)
        assert not denied.degraded

    def test_denied_a_microsecond_before_the_wait_ends_and_allowed_when_it_does(
        self, driver: Driver, fake_clock: FakeClock
    ) -> None:
        fake_clock.advance(0.4)
        assert driver.allowed(6, FIVE_A_MINUTE, "u") == 5
        wait = driver.check(FIVE_A_MINUTE, "u").retry_after
        assert wait == 59.6
        fake_clock.advance(59.599999)
        assert driver.check(FIVE_A_MINUTE, "u").retry_after == 0.000001
        fake_clock.advance(0.000001)
        assert driver.check(FIVE_A_MINUTE, "u").remaining == 4

    def test_keys_and_groups_are_independent(self, driver: Driver) -> None:
        assert driver.allowed(6, FIVE_A_MINUTE, "u", group="g") == 5
        assert driver.allowed(6, FIVE_A_MINUTE, "v", group="g") == 5
        assert driver.allowed(6, FIVE_A_MINUTE, "u", group="h") == 5

    def test_odd_callers_are_independent(self, driver: Driver) -> None:
        once = Rate.parse("1/m")
        assert [bool(driver.check(once, caller)) for caller in CALLERS] == [True] * len(CALLERS)
        assert [bool(driver.check(once, caller)) for caller in CALLERS] == [False] * len(CALLERS)

    def test_peek_sees_and_changes_nothing(self, driver: Driver) -> None:
        assert driver.peek(FIVE_A_MINUTE, "u").remaining == 5
        driver.allowed(3, FIVE_A_MINUTE, "u")
        assert [driver.peek(FIVE_A_MINUTE, "u").remaining for _ in range(3)] == [2, 2, 2]
        assert not driver.peek(FIVE_A_MINUTE, "u", cost=3)
        driver.allowed(2, FIVE_A_MINUTE, "u")
        assert not driver.peek(FIVE_A_MINUTE, "u")

    def test_costs(self, driver: Driver) -> None:
        ten = Rate.parse("10/m")
        never = driver.check(ten, "u", cost=11)
        assert (never.allowed, never.remaining, never.retry_after) == (False, 10, None)
        assert [bool(driver.check(ten, "u", cost=cost)) for cost in (6, 5, 3, 2, 0, 1, 1)] == [
            *(True, False, True, False, True, True, False)
        ]

    def test_a_zero_limit_denies_the_first_call(self, driver: Driver) -> None:
        decision = driver.check(Rate.parse("0/m"), "u")
        assert (decision.allowed, decision.remaining, decision.retry_after) == (False, 0, None)
        assert "Retry-After" not in decision.headers()

    def test_several_rates_are_taken_together_or_not_at_all(self, driver: Driver, fake_clock: FakeClock) -> None:
        both = Rate.parse("2/s; 3/m")
        assert driver.allowed(4, both, "u") == 2
        denied = driver.check(both, "u")
        assert (denied.limit, denied.retry_after) == (2, 1.0)
        fake_clock.advance(1)
        assert driver.allowed(2, both, "u") == 1
        assert driver.check(both, "u").retry_after == 59.0

    def test_several_calls_are_taken_together_or_not_at_all(self, driver: Driver) -> None:
        wide, narrow = Call(Rate.parse("10/m"), "u", "wide", 2), Call(Rate.parse("3/m"), "u", "narrow", 2)
        assert driver.check_many([wide, narrow])
        refused = driver.check_many([wide, narrow])
        assert (refused.allowed, refused.rule, refused.remaining) == (False, "narrow", 1)
        assert driver.peek(Rate.parse("10/m"), "u", group="wide").remaining == 8

    def test_one_budget_named_twice_in_a_call_is_charged_twice(self, driver: Driver) -> None:
        call = Call(FIVE_A_MINUTE, "u", "g", 2)
        assert driver.check_many([call, call]).remaining == 1
        assert not driver.check_many([call, call])
        assert driver.peek(FIVE_A_MINUTE, "u", group="g").remaining == 1

    def test_clear_forgets_one_caller_under_one_rule(self, driver: Driver) -> None:
        for caller in ("u", "v"):
            driver.allowed(5, "WRITE_HEAVY", caller)
        driver.allowed(5, "AI_ANALYSIS", "u")
        driver.clear("WRITE_HEAVY", "u")
        assert driver.allowed(6, "WRITE_HEAVY", "u") == 5
        assert driver.allowed(1, "WRITE_HEAVY", "v") == 0
        assert driver.allowed(1, "AI_ANALYSIS", "u") == 0

    def test_clear_without_a_rule_forgets_all_of_one_caller(self, driver: Driver) -> None:
        if not self.clears_callers:
            return
        for caller in ("a*[b]{c}\\?", "v"):
            driver.allowed(5, "WRITE_HEAVY", caller)
            driver.allowed(5, Rate.parse("5/m; 9/h"), caller, group="g")
        driver.clear(None, "a*[b]{c}\\?")
        assert driver.allowed(6, "WRITE_HEAVY", "a*[b]{c}\\?") == 5
        assert driver.allowed(6, Rate.parse("5/m; 9/h"), "a*[b]{c}\\?", group="g") == 5
        assert driver.allowed(1, "WRITE_HEAVY", "v") == 0

    def test_a_limit_changed_in_flight_meets_the_same_count(self, driver: Driver) -> None:
        driver.allowed(4, Rate.parse("5/m"), "u")
        assert driver.check(Rate.parse("3/m"), "u").remaining == 0
        assert driver.check(Rate.parse("3/m"), "u", cost=0).allowed
        assert driver.check(Rate.parse("10/m"), "u").remaining == 5

    def test_a_clock_that_steps_back_locks_nobody_out(self, driver: Driver, fake_clock: FakeClock) -> None:
        fake_clock.advance(3600)
        assert driver.allowed(6, FIVE_A_MINUTE, "u") == 5
        fake_clock.advance(-3600)
        assert driver.allowed(6, FIVE_A_MINUTE, "u") == 5
        fake_clock.advance(3600)
        assert driver.allowed(1, FIVE_A_MINUTE, "u") == 0

    def test_exact_under_concurrency(self, store: Store, fake_clock: FakeClock) -> None:
        if not self.atomic:
            return
        limiter, hundred = Limiter(store, clock=fake_clock), Rate.parse("100/m")

        def fifty(_: int) -> int:
            return sum(bool(limiter.check(hundred, "threads")) for _ in range(50))

        async def eight_hundred() -> int:
            decisions = await asyncio.gather(*(limiter.acheck(hundred, "coroutines") for _ in range(800)))
            await limiter.aclose()
            return sum(map(bool, decisions))

        with ThreadPoolExecutor(16) as threads:
            assert sum(threads.map(fifty, range(16))) == 100
        assert asyncio.run(eight_hundred()) == 100

    def test_one_store_serves_several_event_loops(self, store: Store, fake_clock: FakeClock) -> None:
        limiter = Limiter(store, clock=fake_clock)

        async def one() -> bool:
            allowed = bool(await limiter.acheck(FIVE_A_MINUTE, "loops"))
            await limiter.aclose()
            return allowed

        assert [asyncio.run(one()) for _ in range(6)] == [True] * 5 + [False]

    def test_outcomes_keep_the_order_of_their_charges(self, store: Store, fake_clock: FakeClock) -> None:
        charges = [
            Charge(f"rl:{name}", "u", Rate(limit, 60), 1, name) for name, limit in (("a", 3), ("b", 1), ("c", 2))
        ]
        assert [outcome.remaining for outcome in store.apply(charges, fake_clock())] == [2, 0, 1]
        assert [outcome.allowed for outcome in store.apply(charges, fake_clock())] == [True, False, True]


class PlacesConformance:
    """What every store that keeps places must do. Subclass it with a fixture `store` that gives an empty store.

    Set `leases_by_clock = False` for a medium that ends leases by a clock of its own; the tests of that are then left out.
    """

    leases_by_clock = True

    def test_as_many_members_have_a_place_as_there_are(self, holder: Holder) -> None:
        assert [holder.hold(TWO, member) for member in "abc"] == [
            [Claimed(True, 1)],
            [Claimed(True, 2)],
            [Claimed(False, 2)],
        ]
        assert holder.count(TWO) == 2

    def test_a_place_that_is_given_back_is_the_next_ones(self, holder: Holder) -> None:
        holder.hold(TWO, "a")
        holder.hold(TWO, "b")
        holder.release(TWO, "a")
        assert holder.count(TWO) == 1
        assert holder.hold(TWO, "c") == [Claimed(True, 2)]
        assert holder.hold(TWO, "a") == [Claimed(False, 2)]

    def test_a_place_is_given_back_once_and_only_by_its_member(self, holder: Holder) -> None:
        holder.release(TWO, "a")
        holder.hold(TWO, "a")
        holder.hold(TWO, "b")
        for member in ("c", "a", "a"):
            holder.release(TWO, member)
        assert holder.count(TWO) == 1

    def test_a_member_that_holds_again_has_still_one_place(self, holder: Holder) -> None:
        assert [holder.hold(TWO, "a") for _ in range(3)] == [[Claimed(True, 1)]] * 3

    def test_there_may_be_no_place(self, holder: Holder) -> None:
        none = TWO._replace(most=0)
        assert holder.hold(none, "a") == [Claimed(False, 0)]
        assert holder.count(none) == 0

    def test_a_room_that_becomes_smaller_turns_nobody_out(self, holder: Holder) -> None:
        holder.hold(TWO, "a")
        holder.hold(TWO, "b")
        one = TWO._replace(most=1)
        held = [claimed.held for member in "abc" for claimed in holder.hold(TWO if member < "c" else one, member)]
        assert held == [True, True, False]

    def test_claims_on_several_rooms_are_judged_each_by_itself(self, holder: Holder) -> None:
        other = Room("rl:connections~60p:{user:2}", 1, 60_000_000)
        claims = [Claim(TWO, "a"), Claim(other, "b"), Claim(TWO, "c"), Claim(other, "d"), Claim(TWO, "e")]
        assert [claimed.held for claimed in holder.hold_all(*claims)] == [True, True, True, False, False]
        assert (holder.count(TWO), holder.count(other)) == (2, 1)

    def test_many_claims_together(self, holder: Holder) -> None:
        rooms = [Room(f"rl:connections~60p:{{user:{n}}}", 3, 60_000_000) for n in range(130)]
        claims = [Claim(room, f"m{n}") for room in rooms for n in range(4)]
        assert sum(claimed.held for claimed in holder.hold_all(*claims)) == 390
        assert [holder.count(rooms[n]) for n in (0, 64, 129)] == [3, 3, 3]

    def test_a_lease_ends_to_the_microsecond(self, holder: Holder, fake_clock: FakeClock) -> None:
        if not self.leases_by_clock:
            return
        holder.hold(TWO, "a", "b")
        fake_clock.advance(59.999999)
        assert holder.hold(TWO, "c") == [Claimed(False, 2)]
        fake_clock.advance(0.000001)
        assert holder.count(TWO) == 0
        assert holder.hold(TWO, "c") == [Claimed(True, 1)]

    def test_a_lease_that_is_renewed_does_not_end(self, holder: Holder, fake_clock: FakeClock) -> None:
        if not self.leases_by_clock:
            return
        holder.hold(TWO, "a", "b")
        fake_clock.advance(59)
        assert holder.hold(TWO, "a") == [Claimed(True, 2)]
        fake_clock.advance(59)
        assert holder.hold(TWO, "c", "d") == [Claimed(True, 2), Claimed(False, 2)]
        assert holder.hold(TWO, "b") == [Claimed(False, 2)]

    def test_a_clock_that_is_put_back_keeps_no_place_for_long(self, holder: Holder, fake_clock: FakeClock) -> None:
        if not self.leases_by_clock:
            return
        holder.hold(TWO, "a", "b")
        fake_clock.advance(-3600)
        assert holder.count(TWO) == 0
        assert [claimed.held for claimed in holder.hold(TWO, "c", "d", "e")] == [True, True, False]

    def test_never_more_than_all_places_are_taken_at_once(self, store: Store, fake_clock: FakeClock) -> None:
        assert isinstance(store, HasPlaces)
        places, ten = store.places, TWO._replace(most=10)

        async def one(member: str) -> bool:
            (claimed,) = await places.ahold([Claim(ten, member)], fake_clock())
            return claimed.held

        async def fifty(thread: int) -> int:
            held = sum(await asyncio.gather(*(one(f"t{thread}m{n}") for n in range(50))))
            await store.aclose()
            return held

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(lambda thread: asyncio.run(fifty(thread)), range(8))) == 10
