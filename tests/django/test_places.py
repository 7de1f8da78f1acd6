"""Places in Django's caches: what the conformance suite cannot say, for a cache ends leases by its own clock."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import BaseCache, caches
from django.core.cache.backends import base, locmem
from django.test import override_settings

from ratelimit import ConfigurationError, Identity, Limiter
from ratelimit.connections import ConnectionCap
from ratelimit.stores.places import Claim, Claimed, Room
from ratelimit.testing import FakeClock
from ratelimit_django.store import DjangoCacheStore
from tests.django.backends import cache_settings

TWO = Room("rl:connections~60p:{user:1}", 2, 60_000_000)
A, B, C = (Claim(TWO, member) for member in "abc")


@pytest.fixture
def cache_time(monkeypatch: pytest.MonkeyPatch, fake_clock: FakeClock) -> FakeClock:
    """The clock by which LocMem ends what it keeps."""
    for module in (locmem, base):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: fake_clock() / 1_000_000))
    return fake_clock


async def test_a_lease_ends_and_one_that_is_renewed_does_not(scratch: BaseCache, cache_time: FakeClock) -> None:
    places = DjangoCacheStore().places
    assert await places.ahold([A, B, C], 0) == [Claimed(True, 1), Claimed(True, 2), Claimed(False, 2)]
    cache_time.advance(59)
    assert await places.ahold([A], 0) == [Claimed(True, 2)]
    cache_time.advance(2)
    assert await places.acount(TWO, 0) == 1
    assert await places.ahold([C, B], 0) == [Claimed(True, 2), Claimed(False, 2)]


async def test_whoever_renews_too_late_does_not_take_what_is_anothers_for_its_own(
    scratch: BaseCache, cache_time: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = TWO._replace(most=1)
    places = DjangoCacheStore().places
    await places.ahold([Claim(one, "a")], 0)
    touch = locmem.LocMemCache.touch

    def touch_too_late(self: Any, key: str, *args: Any) -> Any:
        cache_time.advance(61)
        assert self.add(key, "b", 60)
        return touch(self, key, *args)

    monkeypatch.setattr(locmem.LocMemCache, "touch", touch_too_late)
    assert await places.ahold([Claim(one, "a")], 0) == [Claimed(False, 1)]
    monkeypatch.undo()


async def test_a_place_that_is_free_when_looked_at_and_taken_when_asked_for_is_anothers(
    scratch: BaseCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quicker(others: int) -> Callable[..., Any]:
        add = locmem.LocMemCache.add
        left = [others]

        def quick(self: Any, key: str, value: str, *args: Any) -> Any:
            if left[0]:
                left[0] -= 1
                assert add(self, key, "other", *args)
            return add(self, key, value, *args)

        return quick

    monkeypatch.setattr(locmem.LocMemCache, "add", quicker(1))
    assert await DjangoCacheStore().places.ahold([A], 0) == [Claimed(True, 2)]
    caches["default"].clear()
    monkeypatch.setattr(locmem.LocMemCache, "add", quicker(2))
    assert await DjangoCacheStore().places.ahold([A], 0) == [Claimed(False, 2)]


@pytest.mark.parametrize("alias", ["files", "nothing"])
async def test_a_cache_in_which_two_could_take_one_place_is_refused(alias: str, fake_clock: FakeClock) -> None:
    cap = ConnectionCap(limiter=Limiter(f"django://{alias}", clock=fake_clock))
    with pytest.raises(ConfigurationError, match="Cache cannot keep places"):
        async with cap.hold("u"):
            raise AssertionError
    with pytest.raises(ConfigurationError, match="Cache cannot keep places"):
        cap.taken("u")


async def test_more_places_than_can_be_looked_at_are_refused(scratch: BaseCache, fake_clock: FakeClock) -> None:
    limiter = Limiter("django://", clock=fake_clock)
    async with ConnectionCap(256, limiter=limiter).hold("u") as decision:
        assert decision.remaining == 255
    with pytest.raises(ConfigurationError, match="at most 256 places for a caller, not 257"):
        async with ConnectionCap(257, limiter=limiter).hold("u"):
            raise AssertionError


@pytest.mark.parametrize("fail_open", [True, False])
async def test_a_cache_that_fails_is_an_outage(fake_clock: FakeClock, fail_open: bool) -> None:
    from ratelimit.settings import Settings

    cap = ConnectionCap(limiter=Limiter("django://missing", settings=Settings(fail_open=fail_open), clock=fake_clock))
    async with cap.hold(Identity(user="1")) as decision:
        assert (decision.allowed, decision.degraded) == (fail_open, True)


async def test_a_server_is_asked_in_a_thread(redis_url: str, fake_clock: FakeClock) -> None:
    from tests.django.backends import REDIS

    with override_settings(**cache_settings(BACKEND=REDIS, LOCATION=redis_url, OPTIONS={})):
        cap = ConnectionCap(1, limiter=Limiter("django://", clock=fake_clock))
        async with cap.hold("u") as first, cap.hold("u") as second:
            assert (first.allowed, second.allowed) == (True, False)
            assert await cap.ataken("u") == 1
        assert await cap.ataken("u") == 0
