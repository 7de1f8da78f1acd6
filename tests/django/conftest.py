"""What the tests of the Django adapter share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import BaseCache, caches
from django.db import connections
from django.test import override_settings

from ratelimit import Limiter
from ratelimit.testing import FakeClock, isolated
from ratelimit_django.store import DjangoCacheStore
from tests.django.backends import cache_settings


@pytest.fixture
def scratch() -> Iterator[BaseCache]:
    """A cache of the test's own, called `default`."""
    with override_settings(**cache_settings()):
        caches["default"].clear()
        yield caches["default"]


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    caches["default"].clear()
    yield
    caches["default"].clear()


@pytest.fixture
def cache_limiter(fake_clock: FakeClock) -> Iterator[Limiter]:
    """The process's limiter for one test: on the cache `default`, with a clock that stands still."""
    with isolated(DjangoCacheStore(), fake_clock) as limiter:
        yield limiter


@pytest.fixture
def _closed_threads() -> Iterator[None]:
    """Closes the database connection of the thread in which async code runs Django's: a later test that does no more
    than look at connections would be told that it may not."""
    yield
    asyncio.run(sync_to_async(connections.close_all)())
