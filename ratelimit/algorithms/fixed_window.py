"""Fixed, clock-aligned windows: at most `limit` units from one multiple of the window to the next.

Rules:
- State: (units used,) in the window whose number is part of the key. None is a caller not seen in it.
- A cost passes when `used + cost <= limit`. A cost of 0 passes unless the limit is 0: it changes nothing.
- A refused cost uses nothing.
"""

from __future__ import annotations

from ratelimit.outcome import MAX_SKEW_US, NEVER, Outcome
from ratelimit.rates import Rate

State = tuple[int, ...]


def current(state: State | None, rate: Rate, now_us: int) -> State:
    """`state` as it stands: what another window holds has another key."""
    return (0,) if state is None else state


def passes(state: State, rate: Rate, cost: int, now_us: int) -> bool:
    """Whether `cost` units fit beside the used ones."""
    return rate.limit > 0 and (cost == 0 or state[0] + cost <= rate.limit)


def take(state: State, cost: int) -> State:
    """`state` after `cost` units, negative ones to give back."""
    used = state[0] + cost
    return (used if used > 0 else 0,)


def settle(state: State, rate: Rate, cost: int, taken_us: int) -> State:
    """`state` once `cost` more units were taken at `taken_us`, or given back: each window has a key of its own."""
    return take(state, cost)


def lifetime_us(state: State, rate: Rate, now_us: int) -> int:
    """How long to keep `state`: the rest of the window and up to a minute more, for nodes whose clocks are behind."""
    return rate.window_us - now_us % rate.window_us + min(rate.window_us, MAX_SKEW_US)


def wait_us(rate: Rate, cost: int, now_us: int) -> int:
    """How long a refused cost waits: until the window ends, unless it never can pass."""
    return rate.window_us - now_us % rate.window_us if 0 < rate.limit >= cost else NEVER


def left(state: State, rate: Rate, now_us: int) -> tuple[int, int]:
    """Whole units left in `state`, and microseconds until nothing is used."""
    used, limit, window_us = state[0], rate.limit, rate.window_us
    return limit - used if used < limit else 0, window_us - now_us % window_us if used else 0


def outcome(state: State, rate: Rate, cost: int, now_us: int, charged: bool) -> Outcome:
    """The figures after a call for `cost` units that were `charged` or not."""
    allowed = passes(state, rate, cost, now_us)
    remaining, reset_us = left(take(state, cost) if charged else state, rate, now_us)
    retry_us = 0 if allowed else wait_us(rate, cost, now_us)
    return Outcome(allowed, rate.limit, remaining, retry_us, reset_us)
