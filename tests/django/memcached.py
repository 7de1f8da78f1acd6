"""Django's memcached backend over a stand-in for the server that keeps memcached's rules: what it takes for a key, how it
reads lifetimes, what it says about a missing counter."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

from django.core.cache.backends.memcached import BaseMemcachedCache

MONTH = 30 * 86_400
_values: dict[str, tuple[Any, float]] = {}
_lock = threading.Lock()


class Client:
    """As pymemcache's: errors for keys that the server refuses, None for a counter that is not there."""

    def __init__(self, servers: list[str]) -> None:
        self.servers = servers

    def add(self, key: str, value: int, expire: int) -> bool:
        with _lock:
            if self._live(key) is not None:
                return False
            # Beyond 30 days a lifetime is a date; one that has passed makes nothing.
            _values[key] = value, expire if expire > MONTH else time.time() + expire
            return True

    def get(self, key: str, default: Any = None) -> Any:
        with _lock:
            found = self._live(key)
            return default if found is None else found

    def get_multi(self, keys: list[str]) -> dict[str, int]:
        with _lock:
            return {key: found for key in keys if (found := self._live(key)) is not None}

    def incr(self, key: str, delta: int) -> int | None:
        with _lock:
            found = self._live(key)
            if found is None:
                return None
            _values[key] = max(0, found + delta), _values[key][1]
            return _values[key][0]

    def decr(self, key: str, delta: int) -> int | None:
        return self.incr(key, -delta)

    def touch(self, key: str, expire: int) -> bool:
        with _lock:
            found = self._live(key)
            if found is None:
                return False
            _values[key] = found, time.time() + expire
            return True

    def delete(self, key: str) -> bool:
        with _lock:
            return _values.pop(key, None) is not None

    def delete_multi(self, keys: list[str]) -> None:
        with _lock:
            for key in keys:
                _values.pop(key, None)

    def flush_all(self) -> None:
        _values.clear()

    def disconnect_all(self) -> None:
        pass

    def _live(self, key: str) -> Any:
        assert len(key.encode()) <= 250, key
        assert all(33 <= ord(character) < 127 for character in key), key
        value, expires = _values.get(key, (None, 0.0))
        return value if expires > time.time() else None


class Memcached(BaseMemcachedCache):
    """The backend, as settings name it."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params, SimpleNamespace(Client=Client), LookupError)


def lifetimes() -> list[float]:
    """Seconds that each entry has yet to live."""
    return [expires - time.time() for _, expires in _values.values()]
