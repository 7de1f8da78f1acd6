from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import BaseCache, caches
from django.core.cache.backends.base import memcache_key_warnings
from django.core.cache.backends.locmem import LocMemCache
from django.test import override_settings

from ratelimit import Limiter, Rate, StoreError
from ratelimit.outcome import Charge
from ratelimit.testing import CALLERS, START, FakeClock
from ratelimit_django.counters import MAX_KEY, keyed
from ratelimit_django.store import ATTEMPTS, DjangoCacheStore
from tests.django.backends import MEMCACHED, ONE, REDIS, cache_settings
from tests.django.memcached import MONTH, lifetimes


def charges(*callers: str, cost: int = 1, rate: Rate = ONE) -> list[Charge]:
    return [Charge("rl:g", caller, rate, cost, "g") for caller in callers]


class Recorder(LocMemCache):
    """A cache that notes what is asked of it, and does something else before some of it."""

    calls: list[tuple[Any, ...]]
    before: dict[str, Any]

    def __init__(self, name: str, params: dict[str, Any]) -> None:
        super().__init__(name, params)
        self.calls = []
        self.before = {}

    def _note(self, operation: str, *args: Any) -> None:
        self.calls.append((operation, *args))
        meanwhile = self.before.pop(operation, None)
        if meanwhile:
            meanwhile()

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        self._note("get", key)
        return super().get(key, default, version)

    def add(self, key: str, value: Any, timeout: Any = 0, version: int | None = None) -> bool:
        self._note("add", key, value, timeout)
        return super().add(key, value, timeout, version)

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        self._note("incr", key, delta)
        return super().incr(key, delta, version)


@pytest.fixture
def recorder() -> Iterator[tuple[DjangoCacheStore, Recorder]]:
    with override_settings(**cache_settings(BACKEND=f"{__name__}.Recorder")):
        store = DjangoCacheStore()
        cache = store._own.get()
        assert isinstance(cache, Recorder)
        cache.clear()
        yield store, cache


def operations(cache: Recorder) -> list[str]:
    names = [call[0] for call in cache.calls]
    cache.calls.clear()
    return names


def test_a_denied_call_only_reads(recorder: tuple[DjangoCacheStore, Recorder], fake_clock: FakeClock) -> None:
    store, cache = recorder
    limiter = Limiter(store, clock=fake_clock)
    two = Rate(2, 60)
    assert limiter.check(two, "u")
    assert operations(cache) == ["get", "add"]
    assert limiter.check(two, "u")
    assert operations(cache) == ["get", "incr"]
    assert not limiter.check(two, "u")
    assert operations(cache) == ["get"]
    limiter.peek(two, "u")
    assert operations(cache) == ["get"]


def test_a_counter_lives_to_the_end_of_the_next_window_and_is_not_prolonged(
    recorder: tuple[DjangoCacheStore, Recorder], fake_clock: FakeClock
) -> None:
    store, cache = recorder
    fake_clock.advance(2.5)
    store.apply(charges("u", rate=Rate(3, 10)), fake_clock())
    assert cache.calls[-1] == ("add", "rl:g:{u}:180000000", 1, 18)  # 17.5 seconds, in whole ones
    (expires,) = cache._expire_info.values()
    fake_clock.advance(5)
    store.apply(charges("u", rate=Rate(3, 10)), fake_clock())
    assert list(cache._expire_info.values()) == [expires]


@pytest.mark.parametrize(("into_window", "seconds"), [(0, 2), (0.000001, 2), (0.5, 2), (0.999999, 2)])
def test_the_shortest_window_has_a_lifetime_of_whole_seconds(
    recorder: tuple[DjangoCacheStore, Recorder], fake_clock: FakeClock, into_window: float, seconds: int
) -> None:
    fake_clock.advance(into_window)
    assert [c.lifetime for c in keyed(recorder[1], charges("u", rate=Rate(1, 1)), fake_clock())] == [seconds]


def test_a_counter_evicted_between_reading_and_adding_to_it_is_made_again(
    recorder: tuple[DjangoCacheStore, Recorder], fake_clock: FakeClock
) -> None:
    store, cache = recorder
    five = charges("u", rate=Rate(5, 60))
    store.apply(five, fake_clock())
    cache.before["incr"] = cache.clear
    (outcome,) = store.apply(five, fake_clock())
    assert (outcome.allowed, outcome.remaining) == (True, 4)
    (key,) = cache._expire_info
    assert 0 < cache._expire_info[key] - time.time() <= 120


def test_a_counter_made_by_another_between_reading_and_making_it_is_added_to(
    recorder: tuple[DjangoCacheStore, Recorder], fake_clock: FakeClock
) -> None:
    store, cache = recorder
    five = charges("u", rate=Rate(5, 60))
    cache.before["add"] = lambda: store.apply(five, fake_clock())
    (outcome,) = store.apply(five, fake_clock())
    assert (outcome.allowed, outcome.remaining) == (True, 3)


def test_what_others_took_since_reading_counts_and_what_was_taken_too_much_is_given_back(
    recorder: tuple[DjangoCacheStore, Recorder], fake_clock: FakeClock
) -> None:
    store, cache = recorder
    two = charges("u", rate=Rate(2, 60))
    store.apply(two, fake_clock())
    cache.before["incr"] = lambda: store.apply(two, fake_clock())
    (outcome,) = store.apply(two, fake_clock())
    assert (outcome.allowed, outcome.remaining, outcome.retry_after_us) == (False, 0, 60_000_000)
    assert list(map(int, (cache.get("rl:g:{u}:30000000"),))) == [2]


def test_a_later_charge_that_is_refused_gives_the_earlier_ones_back(
    recorder: tuple[DjangoCacheStore, Recorder], fake_clock: FakeClock
) -> None:
    store, cache = recorder
    both = [*charges("first", rate=Rate(5, 60)), *charges("second")]
    real_add = cache.add
    # The other one comes after the first charge of this call was taken.
    cache.before["add"] = lambda: cache.before.update(add=lambda: real_add("rl:g:{second}:30000000", 1, 60))
    outcomes = store.apply(both, fake_clock())
    assert [outcome.allowed for outcome in outcomes] == [True, False]
    assert outcomes[0].remaining == 5
    assert (cache.get("rl:g:{first}:30000000"), cache.get("rl:g:{second}:30000000")) == (0, 1)


def test_a_cache_that_fails_in_the_middle_leaves_nothing_taken(
    recorder: tuple[DjangoCacheStore, Recorder], fake_clock: FakeClock
) -> None:
    store, cache = recorder

    def fail() -> None:
        raise ConnectionError("gone")

    cache.before["add"] = lambda: cache.before.update(add=fail)
    with pytest.raises(StoreError, match="Django cache 'default': ConnectionError: gone"):
        store.apply(charges("first", "second"), fake_clock())
    assert cache.get("rl:g:{first}:30000000") == 0


def test_a_fight_for_the_last_unit_ends_in_a_denial(
    recorder: tuple[DjangoCacheStore, Recorder], fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, cache = recorder
    store.apply(charges("u", rate=Rate(2, 60)), fake_clock())
    cache.calls.clear()
    monkeypatch.setattr(cache, "incr", lambda key, delta: 3 if delta > 0 else 1)
    (outcome,) = store.apply(charges("u", rate=Rate(2, 60)), fake_clock())
    assert (outcome.allowed, outcome.remaining) == (False, 0)
    assert operations(cache) == ["get"] * ATTEMPTS


@pytest.mark.parametrize(
    ("operation", "answer", "said"),
    [
        ("get", "x", "gave 'x' where a count was expected"),
        ("add", None, "neither makes nor increments"),
    ],
)
def test_a_cache_that_answers_nonsense_is_an_outage(
    recorder: tuple[DjangoCacheStore, Recorder],
    fake_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    answer: Any,
    said: str,
) -> None:
    store, cache = recorder
    monkeypatch.setattr(cache, operation, lambda *_: answer)
    with pytest.raises(StoreError, match=said):
        store.apply(charges("u"), fake_clock())
    assert Limiter(store, clock=fake_clock).check(ONE, "u").degraded


@pytest.mark.parametrize("prefix", ["", "shop", "p" * 60, "p" * 150])
def test_every_key_passes_memcacheds_rules_and_none_is_shared(fake_clock: FakeClock, prefix: str) -> None:
    once = Rate.parse("1/m")
    with override_settings(**cache_settings(KEY_PREFIX=prefix, VERSION=12345)), warnings.catch_warnings():
        warnings.simplefilter("error")
        caches["default"].clear()
        limiter = Limiter(DjangoCacheStore(), clock=fake_clock)
        group = "module.with.a.name.as.long.as.they.come." * 3
        assert [bool(limiter.check(once, caller, group=group)) for caller in CALLERS] == [True] * len(CALLERS)
        assert [bool(limiter.check(once, caller, group=group)) for caller in CALLERS] == [False] * len(CALLERS)
        made = list(caches["default"]._cache)  # type: ignore[attr-defined]
        assert len(made) == len(set(CALLERS))
        assert [list(memcache_key_warnings(key)) for key in made] == [[]] * len(made)
        assert max(len(key.encode()) for key in made) <= MAX_KEY


def test_keys_stay_readable_when_they_are_short_enough(fake_clock: FakeClock, scratch: BaseCache) -> None:
    Limiter(DjangoCacheStore(), clock=fake_clock).check("AI_QUERY", "user:42")
    assert list(scratch._cache) == [":1:rl:AI_QUERY:{user:42}:30000000"]  # type: ignore[attr-defined]


def test_memcached_reads_long_lifetimes_as_dates(fake_clock: FakeClock) -> None:
    with override_settings(**cache_settings(BACKEND=MEMCACHED, OPTIONS={})):
        caches["default"].clear()
        limiter = Limiter(DjangoCacheStore(), clock=fake_clock)
        for days in (14, 16, 60):
            assert [bool(limiter.check(Rate(2, days * 86_400), "u", group=f"{days}")) for _ in range(3)] == [
                True,
                True,
                False,
            ]
        lived = lifetimes()
        left = [days * 86_400 - START % (days * 86_400) for days in (14, 16, 60)]
        assert [rest <= lives <= rest + 60 for rest, lives in zip(left, lived, strict=True)] == [True] * 3
        assert max(lived) > MONTH


def test_redis_counters_always_have_a_lifetime_of_at_most_two_windows(redis_url: str, fake_clock: FakeClock) -> None:
    import redis

    with (
        override_settings(**cache_settings(BACKEND=REDIS, LOCATION=redis_url, OPTIONS={})),
        redis.Redis.from_url(redis_url) as client,
    ):
        limiter = Limiter(DjangoCacheStore(), clock=fake_clock)
        for _ in range(4):
            limiter.check(Rate.parse("3/10s"), "u")
        (key,) = client.keys()
        assert key.decode() == ":1:rl:default:{u}:180000000"
        assert 0 < client.pttl(key) <= 20_000
        client.persist(key)  # a lifetime that got lost does not outlive the window: its number is in the key
        fake_clock.advance(10)
        assert limiter.check(Rate.parse("3/10s"), "u")
