"""What an algorithm is, and which one a charge uses."""

from __future__ import annotations

from typing import Final, Protocol

from ratelimit.algorithms import anchored_window, distinct, fixed_window, sliding_window, token_bucket
from ratelimit.outcome import Charge, Outcome
from ratelimit.rates import Rate

State = tuple[int, ...]


class Algorithm(Protocol):
    """The functions of an algorithm's module; see any of them."""

    def current(self, state: State | None, rate: Rate, now_us: int) -> State: ...

    def passes(self, state: State, rate: Rate, cost: int, now_us: int) -> bool: ...

    def take(self, state: State, cost: int) -> State: ...

    def settle(self, state: State, rate: Rate, cost: int, taken_us: int) -> State: ...

    def lifetime_us(self, state: State, rate: Rate, now_us: int) -> int: ...

    def left(self, state: State, rate: Rate, now_us: int) -> tuple[int, int]: ...

    def outcome(self, state: State, rate: Rate, cost: int, now_us: int, charged: bool) -> Outcome: ...


BY_NAME: Final[dict[str, Algorithm]] = {
    "fixed": fixed_window,
    "anchored": anchored_window,
    "sliding": sliding_window,
    "token_bucket": token_bucket,
    "leaky_bucket": token_bucket,
}
"""The algorithm of each `Rate.algorithm`."""

DISTINCT: Final[Algorithm] = distinct


def algorithm_of(charge: Charge) -> Algorithm:
    """The algorithm that counts `charge`."""
    return BY_NAME[charge.rate.algorithm] if charge.member is None else DISTINCT


def can_pass(charge: Charge) -> bool:
    """Whether the charge could pass at some time: not when its limit is 0, or its cost above what fits at once."""
    return charge.rate.limit > 0 and units_of(charge) <= charge.rate.capacity


def units_of(charge: Charge) -> int:
    """What `charge` uses: its cost, or one unit for a value to count distinctly; nothing for a cost of 0."""
    return charge.cost if charge.member is None else min(charge.cost, 1)
