from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from django.core.cache import caches
from django.core.management import call_command
from django.test import override_settings

from ratelimit import ConfigurationError, Limiter, Rate, StoreError
from ratelimit.stores import open_store
from ratelimit.testing import FakeClock, PlacesConformance, StoreConformance
from ratelimit_django.store import DjangoCacheStore
from tests.django.backends import MEMCACHED, ONE, REDIS, cache_settings


class TestLocMem(StoreConformance, PlacesConformance):
    clears_callers = False
    leases_by_clock = False

    @pytest.fixture
    def store(self) -> DjangoCacheStore:
        return DjangoCacheStore()


class TestRedis(StoreConformance, PlacesConformance):
    clears_callers = False
    leases_by_clock = False

    @pytest.fixture
    def store(self, redis_url: str) -> Iterator[DjangoCacheStore]:
        with override_settings(**cache_settings(BACKEND=REDIS, LOCATION=redis_url, OPTIONS={})):
            yield DjangoCacheStore()


class TestMemcached(StoreConformance, PlacesConformance):
    clears_callers = False
    leases_by_clock = False

    @pytest.fixture
    def store(self) -> Iterator[DjangoCacheStore]:
        with override_settings(**cache_settings(BACKEND=MEMCACHED, OPTIONS={})):
            caches["default"].clear()
            yield DjangoCacheStore()


class TestFiles(StoreConformance):
    """Exact in one process, although Django's own increment is not."""

    clears_callers = False

    @pytest.fixture
    def store(self) -> DjangoCacheStore:
        caches["files"].clear()
        return DjangoCacheStore("files")


@pytest.mark.usefixtures("_closed_threads")
@pytest.mark.django_db(transaction=True)
class TestDatabase(StoreConformance):
    atomic = False  # not with a connection for each of its threads
    clears_callers = False

    @pytest.fixture
    def store(self) -> Iterator[DjangoCacheStore]:
        call_command("createcachetable", verbosity=0)
        yield DjangoCacheStore("table")
        caches["table"].clear()


@pytest.mark.parametrize("fail_open", [True, False])
async def test_an_unknown_alias_is_an_outage_whatever_the_form(fake_clock: FakeClock, fail_open: bool) -> None:
    from ratelimit.settings import Settings

    limiter = Limiter("django://missing", settings=Settings(fail_open=fail_open), clock=fake_clock)
    for decision in (limiter.check(ONE, "u"), await limiter.acheck(ONE, "u"), limiter.peek(ONE, "u")):
        assert (decision.allowed, decision.degraded) == (fail_open, True)
    with pytest.raises(StoreError, match="there is no 'missing' in CACHES"):
        limiter.clear(ONE, "u")
    with pytest.raises(StoreError, match="there is no 'missing' in CACHES"):
        await limiter.aclear(ONE, "u")


def test_a_server_that_is_gone_is_an_outage(fake_clock: FakeClock) -> None:
    with override_settings(**cache_settings(BACKEND=REDIS, LOCATION="redis://127.0.0.1:1", OPTIONS={})):
        limiter = Limiter(DjangoCacheStore(), clock=fake_clock)
        assert limiter.check(ONE, "u").degraded
        assert asyncio.run(limiter.acheck(ONE, "u")).degraded
        with pytest.raises(StoreError, match="Django cache 'default': ConnectionError"):
            limiter.clear(ONE, "u")


def test_other_algorithms_are_refused(fake_clock: FakeClock) -> None:
    limiter = Limiter("django://", clock=fake_clock)
    with pytest.raises(ConfigurationError, match=r"60/m burst 120.*token_bucket.*DjangoCacheStore holds fixed"):
        limiter.check(Rate.parse("60/m burst 120"), "u")


async def test_clearing_a_whole_caller_is_refused_for_a_cache_lists_no_keys(fake_clock: FakeClock) -> None:
    limiter = Limiter("django://", clock=fake_clock)
    with pytest.raises(ConfigurationError, match="name the rule"):
        limiter.clear(None, "u")
    with pytest.raises(ConfigurationError, match="name the rule"):
        await limiter.aclear(None, "u")


def test_urls_name_an_alias() -> None:
    stores = [open_store(url) for url in ("django://", "django://files", "django://With_Capitals")]
    assert [store.alias for store in stores if isinstance(store, DjangoCacheStore)] == [
        "default",
        "files",
        "With_Capitals",
    ]


@pytest.mark.parametrize("url", ["django://a/b", "django://a?b=c"])
def test_urls_that_say_more_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="expected 'django://' and the alias"):
        open_store(url)


@pytest.mark.usefixtures("_closed_threads")
@pytest.mark.django_db(transaction=True)
async def test_a_database_cache_is_asked_in_the_thread_of_the_connection(fake_clock: FakeClock) -> None:
    from asgiref.sync import sync_to_async

    await sync_to_async(call_command)("createcachetable", verbosity=0)
    limiter = Limiter("django://table", clock=fake_clock)
    decisions = await asyncio.gather(*(limiter.acheck(Rate(3, 60), "u") for _ in range(10)))
    assert sum(map(bool, decisions)) == 3
    assert not any(decision.degraded for decision in decisions)
    await limiter.aclear(Rate(3, 60), "u")
    assert await limiter.acheck(Rate(3, 60), "u")
