"""Known denials: a caller that has used up its limit asks again and again. How many of these checks are answered while
redis-py does one INCR; an answer that needs no trip is worth many.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from benchmarks import ours
from benchmarks.checks import Check, Goal
from benchmarks.redis_sync import counted_trips, incr
from benchmarks.report import Row, noted, speed
from benchmarks.rounds import measure
from benchmarks.setting import SAME, Setting, placed
from ratelimit import Limiter, Rule

GOAL = Goal(30, 100)


def rows(setting: Setting) -> Iterator[Row]:
    with setting.server() as server:
        trips = counted_trips(server, _checks)
        with placed(SAME, server.pid):
            contestants = [check.alone() for check in _checks(server.url)]
            timed = measure(incr(server.url).alone(), contestants, setting.plan(25, 0.05))
        yield noted(speed("redis sync", "a caller that is denied each time, same core", timed), trips)


def _checks(url: str) -> list[Check]:
    makers = {"limits": _limits, "throttled": _throttled}
    return [_ours(url), *(make(url) for package, make in makers.items() if find_spec(package))]


def _ours(url: str) -> Check:
    names = {"limiter": Limiter(url), "rule": Rule("denied", "1/d")}
    return Check("ratelimit, 1/d", "decision = limiter.check(rule, 'user:42')" + ours.ANSWERED, names, True, GOAL)


def _limits(url: str) -> Check:
    from limits import parse
    from limits.storage import storage_from_string
    from limits.strategies import FixedWindowRateLimiter

    names = {"window": FixedWindowRateLimiter(storage_from_string(url)), "item": parse("1/day")}
    return Check("limits, fixed window", "window.hit(item, 'user:42')", names)


def _throttled(url: str) -> Check:
    from throttled import RedisStore, Throttled, per_day

    names = {"bucket": Throttled(using="gcra", quota=per_day(1, burst=1), store=RedisStore(server=url))}
    return Check("throttled-py, GCRA", "bucket.limit('user:42')", names)
