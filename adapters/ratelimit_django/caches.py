"""Django's caches, as a store needs them: one object for each thread, and what its backend can do."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from django.core.cache import BaseCache, InvalidCacheBackendError, caches
from django.core.cache.backends.db import BaseDatabaseCache
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.locmem import LocMemCache


class OwnCache(threading.local):
    """This thread's object of the cache `alias`.

    `caches[alias]` would be a new one for every asyncio task, and with it, for Redis, a new connection for every
    request. Made anew when `CACHES` changes, and in a forked process.
    """

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._held: _Held | None = None

    def get(self) -> BaseCache:
        """The cache. Raises `InvalidCacheBackendError` for an unknown alias."""
        held, settings = self._held, caches.settings
        if held is None or held.settings is not settings or held.process != os.getpid():
            if self._alias not in settings:
                raise InvalidCacheBackendError(f"there is no {self._alias!r} in CACHES")
            self._held = held = _Held(caches.create_connection(self._alias), settings)
        return held.cache

    def close(self) -> None:
        """Lets the object go."""
        self._held = None


class _Held:
    """A cache object that is closed when it is let go, at the latest with its thread."""

    __slots__ = ("cache", "process", "settings")

    def __init__(self, cache: BaseCache, settings: object) -> None:
        self.cache = cache
        self.settings = settings
        self.process = os.getpid()

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        # `getpid` is bound here, for at the interpreter's end `os` may be gone before this object.
        if self.process == getpid():  # else the connection is the parent's
            self.cache.close()


def counts_atomically(cache: BaseCache) -> bool:
    """Whether `incr` is one operation of the backend, not Django's own reading and writing."""
    return type(cache).incr is not BaseCache.incr


def runs_in_process(cache: BaseCache) -> bool:
    """Whether the cache answers without waiting for anything."""
    return isinstance(cache, (LocMemCache, DummyCache))


def runs_on_a_database(cache: BaseCache) -> bool:
    """Whether the cache uses Django's database connections, which belong to threads."""
    return isinstance(cache, BaseDatabaseCache)


_lock = threading.Lock()


def one_at_a_time() -> AbstractContextManager[object]:
    """Held by whoever reads and writes a cache that has no increment of its own; one lock for the process."""
    return _lock


def _renew_lock() -> None:
    """In a forked child: a lock that another thread of the parent held would never be released."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
