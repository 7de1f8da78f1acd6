"""Windows that begin with the caller's first call: at most `limit` units until `window` after it.

Rules:
- State: (beginning of the window, units used in it). None is a caller never seen; the next call begins a window.
- A refused cost uses nothing, and nothing moves the beginning: a wait only counts down.
- A window that begins more than `MAX_SKEW_US` ahead of the clock was left by a clock that has since been put right, and
  is forgotten.
"""

from __future__ import annotations

from ratelimit.outcome import MAX_SKEW_US, NEVER, Outcome
from ratelimit.rates import Rate

State = tuple[int, ...]


def current(state: State | None, rate: Rate, now_us: int) -> State:
    """`state` as it stands at `now_us`."""
    if state is None or now_us >= state[0] + rate.window_us or state[0] - now_us > MAX_SKEW_US:
        return now_us, 0
    return state


def passes(state: State, rate: Rate, cost: int, now_us: int) -> bool:
    """Whether `cost` units fit now; `state` is current."""
    return rate.limit > 0 and (cost == 0 or state[1] + cost <= rate.limit)


def take(state: State, cost: int) -> State:
    """`state` after `cost` units, negative ones to give back."""
    return state[0], max(0, state[1] + cost)


def settle(state: State, rate: Rate, cost: int, taken_us: int) -> State:
    """`state` once `cost` more units were taken at `taken_us`, or given back: unless that window is over."""
    return take(state, cost) if taken_us >= state[0] else state


def lifetime_us(state: State, rate: Rate, now_us: int) -> int:
    """How long `state` can matter: until its window ends."""
    return state[0] + rate.window_us - now_us


def left(state: State, rate: Rate, now_us: int) -> tuple[int, int]:
    """Whole units left in `state`, and microseconds until nothing is used."""
    used = state[1]
    return max(0, rate.limit - used), lifetime_us(state, rate, now_us) if used else 0


def outcome(state: State, rate: Rate, cost: int, now_us: int, charged: bool) -> Outcome:
    """The figures after a call for `cost` units that were `charged` or not."""
    allowed = passes(state, rate, cost, now_us)
    remaining, reset_us = left(take(state, cost) if charged else state, rate, now_us)
    if allowed:
        retry_us = 0
    else:
        retry_us = lifetime_us(state, rate, now_us) if rate.limit > 0 and cost <= rate.limit else NEVER
    return Outcome(allowed, rate.limit, remaining, retry_us, reset_us)
