"""The peers' checks, each as its own documentation shows it, with the rates of `rates.py`.

Whoever keeps several algorithms is asked for the one that is compared. A peer that is not installed is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from benchmarks.checks import Check
from benchmarks.rates import CALLERS, LIMIT, REFILL

Builder = Callable[..., list[Check]]
ROOM = 4_000_000
"""How many keys a store that is bounded may keep."""


def memory(caller: str) -> list[Check]:
    """Sync checks in this process's memory."""
    builders = {"limits": _limits_memory, "throttled": _throttled_memory, "pyrate_limiter": _pyrate_memory}
    return _of({**builders, "django_ratelimit": _django_memory}, caller)


def amemory(caller: str) -> list[Check]:
    """The same in an event loop."""
    return _of({"limits": _limits_amemory, "throttled": _throttled_amemory, "pyrate_limiter": _pyrate_amemory}, caller)


def redis(url: str, caller: str) -> list[Check]:
    """Sync checks on a single server, `redis://host:port/0`."""
    return _of({"limits": _limits_redis, "throttled": _throttled_redis, "pyrate_limiter": _pyrate_redis}, url, caller)


def aredis(url: str, caller: str) -> list[Check]:
    """The same in an event loop, on a single server or a cluster, `redis+cluster://host:port`."""
    return _of({"limits": _limits_aredis, "throttled": _throttled_aredis}, url, caller)


def _of(builders: dict[str, Builder], *arguments: Any) -> list[Check]:
    return [check for package, build in builders.items() if find_spec(package) for check in build(*arguments)]


def _limits_names(storage: Any, strategies: Any) -> dict[str, Any]:
    from limits import parse

    window = strategies.FixedWindowRateLimiter(storage)
    counter = strategies.SlidingWindowCounterRateLimiter(storage)
    return {"window": window, "counter": counter, "item": parse(f"{LIMIT}/hour"), "callers": CALLERS}


def _limits(storage: Any, caller: str) -> list[Check]:
    from limits import strategies

    names = _limits_names(storage, strategies)
    hit, stats = f"window.hit(item, {caller})", f"window.get_window_stats(item, {caller})"
    return [
        Check("limits, fixed window", hit, names),
        Check("limits, sliding window counter", f"counter.hit(item, {caller})", names),
        Check("limits, fixed window and figures", f"{hit}; {stats}", names),
    ]


def _limits_async(storage: Any, caller: str) -> list[Check]:
    from limits.aio import strategies

    names = _limits_names(storage, strategies)
    return [Check("limits, fixed window", f"await window.hit(item, {caller})", names)]


def _limits_memory(caller: str) -> list[Check]:
    from limits.storage import MemoryStorage

    return _limits(MemoryStorage(), caller)


def _limits_amemory(caller: str) -> list[Check]:
    from limits.aio.storage import MemoryStorage

    return _limits_async(MemoryStorage(), caller)


def _limits_redis(url: str, caller: str) -> list[Check]:
    from limits.storage import storage_from_string

    return _limits(storage_from_string(url), caller)


def _limits_aredis(url: str, caller: str) -> list[Check]:
    from limits.storage import storage_from_string

    return _limits_async(storage_from_string(f"async+{url}", implementation="redispy"), caller)


def _throttled(throttled: Any, store: Any, caller: str, awaiting: str = "") -> list[Check]:
    window = throttled.Throttled(using="fixed_window", quota=throttled.per_hour(LIMIT), store=store)
    bucket = throttled.Throttled(using="gcra", quota=throttled.per_hour(REFILL, burst=LIMIT), store=store)
    names = {"window": window, "bucket": bucket, "callers": CALLERS}
    return [
        Check("throttled-py, fixed window", f"{awaiting}window.limit({caller})", names),
        Check("throttled-py, GCRA", f"{awaiting}bucket.limit({caller})", names),
    ]


def _throttled_memory(caller: str) -> list[Check]:
    import throttled

    return _throttled(throttled, throttled.MemoryStore(options={"MAX_SIZE": ROOM}), caller)


def _throttled_amemory(caller: str) -> list[Check]:
    from throttled import asyncio as throttled

    return _throttled(throttled, throttled.MemoryStore(options={"MAX_SIZE": ROOM}), caller, "await ")


def _throttled_redis(url: str, caller: str) -> list[Check]:
    import throttled

    return _throttled(throttled, throttled.RedisStore(server=url), caller)


def _throttled_aredis(url: str, caller: str) -> list[Check]:
    from throttled import asyncio as throttled

    return _throttled(throttled, throttled.RedisStore(server=url), caller, "await ")


def _pyrate_names(store: Callable[[str], Any]) -> dict[str, Any]:
    """A bucket for each caller, made when the caller first comes: the limiter itself has one for all."""
    from pyrate_limiter import GCRA, BucketFactory, Duration, Limiter, Rate, RateItem, StateBucket

    rates = [Rate(REFILL, Duration.HOUR, burst=LIMIT)]

    class Buckets(BucketFactory):
        def __init__(self) -> None:
            self.by_name: dict[str, StateBucket] = {}
            self.clock: Any = StateBucket(rates, GCRA(), store("clock"))

        def wrap_item(self, name: str, weight: int = 1) -> RateItem:
            return RateItem(name, self.clock.now(), weight=weight)

        def get(self, item: RateItem) -> StateBucket:
            bucket = self.by_name.get(item.name)
            if bucket is None:
                bucket = self.by_name[item.name] = StateBucket(rates, GCRA(), store(item.name))
            return bucket

    return {"limiter": Limiter(Buckets()), "callers": CALLERS}


def _pyrate_memory(caller: str) -> list[Check]:
    from pyrate_limiter import InMemoryStateStore

    names = _pyrate_names(lambda _: InMemoryStateStore())
    return [Check("pyrate-limiter, GCRA", f"limiter.try_acquire({caller}, blocking=False)", names)]


def _pyrate_amemory(caller: str) -> list[Check]:
    from pyrate_limiter import InMemoryStateStore

    names = _pyrate_names(lambda _: InMemoryStateStore())
    return [Check("pyrate-limiter, GCRA", f"await limiter.try_acquire_async({caller}, blocking=False)", names)]


def _pyrate_redis(url: str, caller: str) -> list[Check]:
    from pyrate_limiter import RedisStateStore
    from redis import Redis

    client = Redis.from_url(url)
    names = _pyrate_names(lambda key: RedisStateStore(client, f"pyrate:{key}"))
    return [Check("pyrate-limiter, GCRA", f"limiter.try_acquire({caller}, blocking=False)", names)]


def _django_memory(caller: str) -> list[Check]:
    """Its function, without a view around it, on Django's cache in memory."""
    from django.conf import settings

    if not settings.configured:
        backend = "django.core.cache.backends.locmem.LocMemCache"
        settings.configure(CACHES={"default": {"BACKEND": backend, "OPTIONS": {"MAX_ENTRIES": ROOM}}})
    from django.http import HttpRequest
    from django_ratelimit.core import is_ratelimited

    names = {"ask": is_ratelimited, "request": HttpRequest(), "callers": CALLERS}
    arguments = f"group='bench', key=lambda *_: {caller}, rate='{LIMIT}/h', increment=True"
    return [Check("django-ratelimit, LocMem", f"ask(request, {arguments})", names)]
