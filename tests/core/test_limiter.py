"""Where a limiter takes its settings, store and clock from, and which limiter is the process's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ratelimit import (
    ConfigurationError,
    Identity,
    Limiter,
    MemoryStore,
    Rate,
    get_limiter,
    process,
    set_limiter,
    settings,
)
from ratelimit.grounds import system_clock
from ratelimit.settings import Settings, override
from ratelimit.testing import FakeClock, isolated

THREE = Rate.parse("3/m")
USER = Identity("42", "203.0.113.7")


class HeldByAnother:
    """A lock that another thread held, and did `work` under it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work

    def __enter__(self) -> None:
        self.work()

    def __exit__(self, *_: object) -> None:
        pass


def limits(limiter: Limiter, *rules: str) -> list[int]:
    return [limiter.peek(rule, "u").limit for rule in rules]


class TestSettings:
    def test_of_the_process_are_looked_up_at_every_check(self, limiter: Limiter, monkeypatch: Any) -> None:
        assert limits(limiter, "AI_QUERY") == [20]
        monkeypatch.setenv("RATELIMIT_AI_QUERY", "50/m")
        settings.reload()
        assert limits(limiter, "AI_QUERY") == [50]
        with override(overrides={"AI_QUERY": "1/m"}):
            assert [bool(limiter.check("AI_QUERY", "u")) for _ in range(2)] == [True, False]
        assert limiter.check("AI_QUERY", "u").remaining == 48

    def test_given_explicitly_are_complete(self, monkeypatch: Any) -> None:
        monkeypatch.setenv("RATELIMIT_AI_QUERY", "50/m")
        settings.reload()
        limiter = Limiter(MemoryStore(), settings=Settings(overrides={"EXPORT": "1/h"}), clock=FakeClock())
        assert limits(limiter, "AI_QUERY", "EXPORT") == [20, 1]
        with override(disable=True):
            assert not limiter.check("EXPORT", "u", cost=2)

    def test_name_the_prefix_of_keys(self) -> None:
        store = MemoryStore()
        for prefix in ("a", "b"):
            with isolated(store, FakeClock(), key_prefix=prefix) as limiter:
                assert limiter.check(THREE, "u", cost=3)

    def test_name_the_store(self) -> None:
        limiter = Limiter(clock=FakeClock())
        first = limiter.store
        assert isinstance(first, MemoryStore)
        with override(store="memory://?max_keys=7"):
            limiter.check(THREE, "u")
            assert (limiter.store.max_keys, len(limiter.store)) == (7, 1)  # type: ignore[attr-defined]
        assert limiter.store is first
        assert len(first) == 0

    def test_name_a_store_that_another_thread_has_just_opened(self) -> None:
        limiter, other = Limiter(), MemoryStore()
        limiter._opening = HeldByAnother(lambda: limiter._opened.update({"memory://?max_keys=7": other}))  # type: ignore[assignment]
        with override(store="memory://?max_keys=7"):
            assert limiter.store is other

    @pytest.mark.parametrize("url", ["memory://host", "memory://?max_keys=0", "redis://[::1"])
    def test_with_a_store_that_cannot_be_opened_fail_at_once_and_name_the_variable(
        self, monkeypatch: Any, url: str
    ) -> None:
        monkeypatch.setenv("RATELIMIT_STORE", url)
        settings.reload()
        with pytest.raises(ConfigurationError, match=r"^RATELIMIT_STORE: "):
            Limiter()

    def test_that_are_bad_fail_when_the_limiter_is_made_even_with_a_store(self, monkeypatch: Any) -> None:
        monkeypatch.setenv("RATELIMIT_PROXIES_COUNT", "one")
        settings.reload()
        with pytest.raises(ConfigurationError, match="RATELIMIT_PROXIES_COUNT='one'"):
            Limiter(MemoryStore())


class TestLimiter:
    def test_counts_in_the_store_it_was_given_even_an_empty_one(self) -> None:
        store, clock = MemoryStore(), FakeClock()
        one, other = Limiter(store, clock=clock), Limiter(store, clock=clock)
        assert one.store is other.store is store
        assert [one.check(THREE, "u").remaining, other.check(THREE, "u").remaining] == [2, 1]

    def test_takes_a_url(self) -> None:
        assert Limiter("memory://?max_keys=5").store.max_keys == 5  # type: ignore[attr-defined]
        with pytest.raises(ConfigurationError, match="store 'nosuch://x': unknown scheme"):
            Limiter("nosuch://x")

    @pytest.mark.parametrize("clock", [lambda: 1.5, lambda: None, lambda: "now", lambda: True])
    def test_a_clock_of_anything_but_whole_microseconds_is_an_error(self, clock: Any) -> None:
        with pytest.raises(ConfigurationError, match="whole microseconds"):
            Limiter(clock=clock)

    def test_goes_by_the_wall_clock_unless_told_otherwise(self) -> None:
        assert type(system_clock()) is int
        assert 1_700_000_000_000_000 < system_clock() < 10_000_000_000_000_000
        assert 0 < Limiter().check(Rate.parse("1/d"), "u").reset_after <= 86_400

    async def test_can_be_closed_and_used_again(self) -> None:
        limiter = Limiter()
        limiter.close()
        await limiter.aclose()
        assert limiter.check(THREE, "u")

    def test_without_limit_stores_nothing(self, limiter: Limiter) -> None:
        decisions = [limiter.unlimited(USER), limiter.unlimited("u")]
        assert [(d.allowed, d.rule, d.key, d.retry_after, d.degraded) for d in decisions] == [
            (True, "unlimited", "user:42", 0.0, False),
            (True, "unlimited", "u", 0.0, False),
        ]
        assert len(limiter.store) == 0  # type: ignore[arg-type]


class TestTheProcesssLimiter:
    @pytest.fixture(autouse=True)
    def none_yet(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process, "_limiter", None)

    def test_is_made_once_even_by_threads(self, eager_threads: None) -> None:
        found: list[Limiter] = []
        start = threading.Barrier(8)
        threads = [threading.Thread(target=lambda: (start.wait(), found.append(get_limiter()))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        assert len(set(map(id, found))) == 1

    def test_is_the_one_that_another_thread_has_just_made(self, monkeypatch: pytest.MonkeyPatch) -> None:
        other = Limiter(MemoryStore())
        monkeypatch.setattr(process, "_limiter_lock", HeldByAnother(lambda: set_limiter(other)))
        assert get_limiter() is other

    def test_is_the_one_that_was_set(self) -> None:
        own = Limiter(MemoryStore())
        set_limiter(own)
        assert get_limiter() is own
        set_limiter(None)
        assert get_limiter() is not own


@pytest.mark.parametrize("identity", [None, 42, b"u"])
def test_a_caller_of_another_kind_is_an_error_that_says_what_to_write(identity: object) -> None:
    with pytest.raises(ConfigurationError, match=r"neither an Identity nor a text; for a user write Identity\(user="):
        Limiter(MemoryStore()).check("AI_QUERY", identity)  # type: ignore[arg-type]


def test_a_limiter_shows_where_it_counts() -> None:
    assert repr(Limiter(MemoryStore())) == "<Limiter on MemoryStore>"
