from __future__ import annotations

import asyncio
import os
import warnings
from concurrent.futures import ThreadPoolExecutor

from django.core.cache import caches
from django.test import override_settings

from ratelimit import Limiter
from ratelimit.testing import FakeClock
from ratelimit_django.caches import OwnCache
from ratelimit_django.store import DjangoCacheStore
from tests.django.backends import ONE, REDIS, cache_settings


def test_one_object_per_thread_and_not_one_per_task(redis_url: str) -> None:
    own = OwnCache("default")
    with override_settings(**cache_settings(BACKEND=REDIS, LOCATION=redis_url, OPTIONS={})):

        async def one() -> int:
            return id(own.get())

        async def many() -> set[int]:
            return set(await asyncio.gather(*(one() for _ in range(20))))

        assert asyncio.run(many()) == {id(own.get())}
        with ThreadPoolExecutor(1) as other:
            assert other.submit(own.get).result() is not own.get()


def test_a_changed_cache_is_used_at_once_and_the_former_one_afterwards(fake_clock: FakeClock) -> None:
    limiter = Limiter(DjangoCacheStore(), clock=fake_clock)
    assert [bool(limiter.check(ONE, "u")) for _ in range(2)] == [True, False]
    with override_settings(**cache_settings(LOCATION="elsewhere")):
        caches["default"].clear()
        assert [bool(limiter.check(ONE, "u")) for _ in range(2)] == [True, False]
    assert not limiter.check(ONE, "u")


def test_closing_lets_go_and_a_later_check_goes_on(fake_clock: FakeClock) -> None:
    store = DjangoCacheStore()
    limiter = Limiter(store, clock=fake_clock)
    assert limiter.check(ONE, "u")
    first = store._own.get()
    limiter.close()
    limiter.close()
    assert store._own.get() is not first
    assert not limiter.check(ONE, "u")


def test_a_forked_process_has_an_object_and_a_lock_of_its_own(fake_clock: FakeClock) -> None:
    from ratelimit_django.caches import one_at_a_time

    own = OwnCache("files")
    mine = own.get()
    with one_at_a_time():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other tests' threads
            child = os.fork()
        if child == 0:
            acquired = one_at_a_time().acquire(timeout=5)  # type: ignore[attr-defined]
            os._exit(0 if acquired and own.get() is not mine else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
