"""What a limit adds to a Django view: the decorated view's time less the bare view's, called with a request as its handler
would. Every call gets a fresh copy of the request, and what was lazily read of one is read anew.

In memory, in microseconds of CPU time. On Redis, over redis-py's INCR, client and server on one core.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from copy import copy
from importlib.util import find_spec
from typing import Any

from benchmarks.checks import Check, Contestant, Goal
from benchmarks.rates import LIMIT, WINDOW
from benchmarks.redis_sync import incr
from benchmarks.report import Row, added, cost
from benchmarks.rounds import Spread, measure
from benchmarks.setting import SAME, Setting, placed

MEMORY, REDIS = Goal(15, 8), Goal(1.3, 1.1)
KEYS = ("ip", "user_or_ip")


def rows(setting: Setting) -> Iterator[Row]:
    if not find_spec("django"):
        return
    with setting.server() as server:
        _set_up(server.url)
        bare = _called("bare view", _view)
        contestants = [*_ours("", "memory://", MEMORY), *_ours(" on Django's LocMem", "django://default"), *_theirs()]
        timed = measure(bare, contestants, setting.plan(25, 0.05), time.process_time)
        yield added("Django", "added to a view, in memory", timed)
        _use_cache("redis")
        with placed(SAME, server.pid):
            contestants = [
                bare,
                *_ours("", server.url, REDIS),
                *_ours(" on Django's cache", "django://redis"),
                *_theirs(),
            ]
            base, (view, *others) = measure(incr(server.url).alone(), contestants, setting.plan(25, 0.05))
            yield cost("Django", "added to a view, on Redis", (base, others), free=Spread.of(view.ratios).median)


def _set_up(redis_url: str) -> None:
    import django
    from django.conf import settings

    local = "django.core.cache.backends.locmem.LocMemCache"
    settings.configure(
        ALLOWED_HOSTS=["*"],
        CACHES={
            "default": {"BACKEND": local, "OPTIONS": {"MAX_ENTRIES": 1_000_000}},
            "redis": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url},
        },
        RATELIMIT_STORE="memory://",
    )
    django.setup()


def _use_cache(alias: str) -> None:
    """Has django-ratelimit count in that cache; the engine is told its store when it is made."""
    from django.conf import settings

    settings.RATELIMIT_USE_CACHE = alias


class User:
    """Somebody who is logged in."""

    is_authenticated = True
    pk = id = 42


def _called(name: str, view: Any, ours: bool = False, goal: Goal | None = None) -> Contestant:
    from django.test import RequestFactory

    request: Any = RequestFactory().get("/report", headers={"User-Agent": "benchmark", "Accept": "*/*"})
    request.user = User()
    return Check(name, "view(copy(request))", {"view": view, "copy": copy, "request": request}, ours, goal).alone()


def _view(request: Any) -> Any:
    from django.http import HttpResponse

    return HttpResponse("ok")


def _ours(where: str, store: str, goal: Goal | None = None) -> list[Contestant]:
    from ratelimit import Limiter
    from ratelimit_django import view_ratelimit

    limiter = Limiter(store)
    decorated = [(key, view_ratelimit(rate=WINDOW, key=key, limiter=limiter)(_view)) for key in KEYS]
    return [_called(f"ratelimit, {key}{where}", view, True, goal) for key, view in decorated]


def _theirs() -> list[Contestant]:
    if not find_spec("django_ratelimit"):
        return []
    from django_ratelimit.decorators import ratelimit

    decorated = [(key, ratelimit(key=key, rate=f"{LIMIT}/h")(_view)) for key in KEYS]
    return [_called(f"django-ratelimit, {key}", view) for key, view in decorated]
