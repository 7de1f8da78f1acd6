"""Nodes whose clocks differ, on a server that goes by its own."""

from __future__ import annotations

import pytest

from ratelimit import Limiter, Rate
from ratelimit.grounds import system_clock
from ratelimit.stores.redis import RedisStore

SKEWS = (-30, -1, 0, 1, 30)
KINDS = ("5/d", "5/d anchored", "5/d sliding", "5/d burst 5", "5/d leaky burst 5")
MINUTE = 60_000_000


def node(url: str, skew: float) -> Limiter:
    """A limiter whose clock is `skew` seconds ahead."""
    store = RedisStore(url, timeout=10)
    day_us = 86_400_000_000
    start_us = system_clock()
    # Clock-aligned windows go by the node's clock: keep away from midnight.
    away_us = 2 * MINUTE if start_us % day_us < MINUTE or start_us % day_us > day_us - 2 * MINUTE else 0
    return Limiter(store, clock=lambda: system_clock() + round(skew * 1_000_000) + away_us)


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_node_reserved_first_is_given_back(redis_url: str, kind: str, skew: float) -> None:
    limiter, rate = node(redis_url, skew), Rate.parse(kind)
    with limiter.reserve(rate, "u", cost=4) as reservation:
        assert limiter.peek(rate, "u").remaining == 1
        reservation.settle(2)
    assert limiter.peek(rate, "u").remaining == 3
    limiter.close()


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_share_one_budget(redis_url: str, kind: str) -> None:
    nodes, rate = [node(redis_url, skew) for skew in SKEWS], Rate.parse(kind)
    assert [[bool(one.check(rate, "u")) for one in nodes] for _ in range(2)] == [[True] * 5, [False] * 5]
    for one in nodes:
        one.close()
