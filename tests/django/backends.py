"""Settings of the caches that the tests put in the place of `default`."""

from __future__ import annotations

from typing import Any

from ratelimit import Rate

MEMCACHED = "tests.django.memcached.Memcached"
REDIS = "django.core.cache.backends.redis.RedisCache"
ONE = Rate(1, 60)


def cache_settings(**changes: Any) -> dict[str, Any]:
    """CACHES with only a `default` one: a fresh LocMem, changed."""
    local = {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "LOCATION": "scratch",
        "OPTIONS": {"MAX_ENTRIES": 10_000},
    }
    return {"CACHES": {"default": {**local, **changes}}}
