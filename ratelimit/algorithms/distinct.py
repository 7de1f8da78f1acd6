"""Distinct counting: at most `limit` different values of an attribute in a fixed window.

Rules:
- State: (different values seen, 1 if this call's value is one of them else 0) in the window whose number is in the key.
- A value seen before passes and uses nothing; a new one uses one unit. A refused value is not remembered.
- A cost of 0 passes unless the limit is 0, and remembers nothing.
"""

from __future__ import annotations

from ratelimit.algorithms import fixed_window
from ratelimit.outcome import Outcome
from ratelimit.rates import Rate

State = tuple[int, ...]

lifetime_us = fixed_window.lifetime_us
left = fixed_window.left


def current(state: State | None, rate: Rate, now_us: int) -> State:
    """`state` as it stands."""
    return (0, 0) if state is None else state


def passes(state: State, rate: Rate, cost: int, now_us: int) -> bool:
    """Whether the value is known, or `cost` more fit: 1, or 0 to look only."""
    return rate.limit > 0 and (cost == 0 or state[1] == 1 or state[0] + cost <= rate.limit)


def take(state: State, cost: int) -> State:
    """`state` once the value is remembered."""
    return state if state[1] or not cost else (state[0] + 1, 1)


def settle(state: State, rate: Rate, cost: int, taken_us: int) -> State:
    """`state`: values have no cost to settle."""
    return state


def outcome(state: State, rate: Rate, cost: int, now_us: int, charged: bool) -> Outcome:
    """The figures after a call for `cost` new values that was `charged` or not; `remaining` counts further ones."""
    allowed = passes(state, rate, cost, now_us)
    remaining, reset_us = left(take(state, cost) if charged else state, rate, now_us)
    retry_us = 0 if allowed else fixed_window.wait_us(rate, cost, now_us)
    return Outcome(allowed, rate.limit, remaining, retry_us, reset_us)
