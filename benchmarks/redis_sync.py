"""On a Redis or Valkey over loopback, sync: one check after the other for one caller, beside redis-py's INCR.

Client and server share a core, or have one each: across cores a trip takes longer, and hides more of what a client does.
`trips` are counted on the wire, in a run of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchmarks import ours, peers
from benchmarks.checks import Check, Goal
from benchmarks.rates import ONE
from benchmarks.report import Row, cost, noted
from benchmarks.rounds import measure
from benchmarks.setting import CROSS, SAME, Setting, placed, placements
from tests.servers import Server
from tests.wire import counting_proxy

GOALS = {SAME: Goal(0.9, 0.8), CROSS: Goal(1.0, 0.9)}
TRIES = 50


def rows(setting: Setting) -> Iterator[Row]:
    plan = setting.plan(25, 0.05)
    with setting.server() as server:
        trips = counted_trips(server, lambda url: [*_checks(url), ours.leased(url, ONE)])
        for placement in placements():
            contestants = [check.towards(GOALS[placement]).alone() for check in _checks(server.url)]
            contestants.append(ours.leased(server.url, ONE).alone())
            with placed(placement, server.pid):
                timed = measure(incr(server.url).alone(), contestants, plan)
            yield noted(cost("redis sync", f"hot key, {placement}", timed), trips)


def _checks(url: str) -> list[Check]:
    return [*ours.checks(url, ONE), *peers.redis(url, ONE)]


def incr(url: str) -> Check:
    """The baseline: redis-py's default client."""
    from redis import Redis

    return Check("redis-py INCR", "client.incr('count')", {"client": Redis.from_url(url)})


def counted_trips(server: Server, checks: Callable[[str], Sequence[Check]]) -> dict[str, str]:
    """How often each check goes to the server and back, once it is warm."""
    found = {}
    with counting_proxy(server.port) as proxy:
        for check in checks(proxy.url):
            contestant = check.alone()
            contestant.run(TRIES)
            proxy.reset()
            contestant.run(TRIES)
            trips = proxy.round_trips / TRIES
            found[check.name] = f"{trips:g} trip{'' if trips == 1 else 's'}"
    return found
