"""A policy of four rules on a Redis or Valkey, beside one rule: fixed windows of a minute, an hour and a day, and a bucket.

Each contestant's baseline is its own check of one rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from benchmarks import ours
from benchmarks.checks import Check, Goal
from benchmarks.rates import BUCKET, LIMIT, WINDOW
from benchmarks.redis_sync import counted_trips
from benchmarks.report import Figure, Row, cost, noted
from benchmarks.rounds import measure
from benchmarks.setting import Setting, placed, placements
from ratelimit import Limiter, Policy, Rule

GOAL = Goal(1.3, 1.1)
Pair = tuple[Check, Check]


def rows(setting: Setting) -> Iterator[Row]:
    with setting.server() as server:
        trips = counted_trips(server, lambda url: [four for _, four in _pairs(url)])
        for placement in placements():
            with placed(placement, server.pid):
                figures = [_figure(setting, pair) for pair in _pairs(server.url)]
            yield noted(
                Row("redis sync", f"four rules over one, {placement}", "x", True, figures, "its own check of one rule"),
                trips,
            )


def _figure(setting: Setting, pair: Pair) -> Figure:
    one, four = pair
    return cost("", "", measure(one.alone(), [four.alone()], setting.plan(25, 0.05))).figures[0]


def _pairs(url: str) -> list[Pair]:
    return [*_ours(url), *(_limits(url) if find_spec("limits") else ())]


def _ours(url: str) -> list[Pair]:
    windows = [Rule(name, f"{LIMIT}/{unit}") for name, unit in (("minute", "m"), ("hour", "h"), ("day", "d"))]
    names = {"limiter": Limiter(url), "rule": Rule("one", WINDOW), "policy": Policy(*windows, Rule("bucket", BUCKET))}
    one, four = (f"decision = limiter.check({rule}, 'user:42')" + ours.ANSWERED for rule in ("rule", "policy"))
    return [(Check("one", one, names, True), Check("ratelimit, a policy of four", four, names, True, GOAL))]


def _limits(url: str) -> list[Pair]:
    from limits import parse
    from limits.storage import storage_from_string
    from limits.strategies import FixedWindowRateLimiter

    items = [parse(f"{LIMIT}/{unit}") for unit in ("second", "minute", "hour", "day")]
    names = {"window": FixedWindowRateLimiter(storage_from_string(url)), "items": items, "item": items[-1]}
    one = Check("one", "window.hit(item, 'user:42')", names)
    return [(one, Check("limits, four hits", "[window.hit(item, 'user:42') for item in items]", names))]
