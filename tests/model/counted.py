"""A Redis store whose counters take every charge that they can take."""

from __future__ import annotations

from collections.abc import Sequence

from ratelimit.algorithms.base import algorithm_of
from ratelimit.outcome import TAKE, Charge, Outcome
from ratelimit.stores.redis import RedisStore


def is_plain(charges: Sequence[Charge], mode: int) -> bool:
    """Whether a counter can take them."""
    if len(charges) != 1 or mode != TAKE:
        return False
    (charge,) = charges
    return charge.enforce and not charge.bans_us and charge.member is None and charge.cost > 0


class General:
    """The store as it is. `counted` tells how often a counter took a charge."""

    holds = RedisStore.holds

    def __init__(self, store: RedisStore) -> None:
        self.counted = 0
        self.settle, self.clear, self.close = store.settle, store.clear, store.close
        self._store = store

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        return self._store.apply(charges, now_us, mode)


class Counted(General):
    """With its counters."""

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        if not is_plain(charges, mode):
            return super().apply(charges, now_us, mode)
        (charge,) = charges
        head, _, tag = charge.key.partition(":{")
        self.counted += 1
        passes, state, at_us = self._store.counter(head, charge.rate).take(tag.removesuffix("}"), charge.cost, now_us)
        return [algorithm_of(charge).outcome(state, charge.rate, charge.cost, at_us, passes)]
