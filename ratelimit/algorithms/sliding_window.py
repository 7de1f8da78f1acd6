"""Sliding window, estimated from two clock-aligned ones: the last window counts by the share of it that is still in view.

Rules:
- State: (number of the current window, units in it, units in the one before). None is a caller never seen.
- In use at `now`: `current + ceil(previous * rest / window)`, where `rest` is what is left of the current window.
- A cost passes when it fits beside what is in use. A refused cost uses nothing.
- A state up to `MAX_SKEW_US` ahead of the clock stands as it is; one further ahead was left by a clock that has since
  been put right, and is forgotten.

Source: the two-window estimate as in Cloudflare's "How we built rate limiting capable of scaling to millions of
domains" (2017), rounded up so that it never admits more than the exact fraction would.
"""

from __future__ import annotations

from ratelimit.outcome import MAX_SKEW_US, NEVER, Outcome
from ratelimit.rates import Rate

State = tuple[int, ...]


def current(state: State | None, rate: Rate, now_us: int) -> State:
    """`state` as it stands at `now_us`."""
    number = now_us // rate.window_us
    if state is None or state[0] * rate.window_us - now_us > MAX_SKEW_US or state[0] < number - 1:
        return number, 0, 0
    if state[0] == number - 1:
        return number, 0, state[1]
    return state


def passes(state: State, rate: Rate, cost: int, now_us: int) -> bool:
    """Whether `cost` units fit now; `state` is current."""
    return rate.limit > 0 and (cost == 0 or _in_use(state, rate, now_us) + cost <= rate.limit)


def take(state: State, cost: int) -> State:
    """`state` after `cost` units, negative ones to give back."""
    number, units, previous = state
    return number, max(0, units + cost), previous


def settle(state: State, rate: Rate, cost: int, taken_us: int) -> State:
    """`state` once `cost` more units were taken at `taken_us`, or given back: in the window that they were taken in."""
    number, units, previous = state
    taken_in = taken_us // rate.window_us
    if taken_in >= number:
        return take(state, cost)
    return (number, units, max(0, previous + cost)) if taken_in == number - 1 else state


def lifetime_us(state: State, rate: Rate, now_us: int) -> int:
    """How long `state` can matter: until the window after the current one has ended."""
    return (state[0] + 2) * rate.window_us - now_us


def left(state: State, rate: Rate, now_us: int) -> tuple[int, int]:
    """Whole units left in `state`, and microseconds until nothing is used."""
    return max(0, rate.limit - _in_use(state, rate, now_us)), _reset(state, rate, now_us)


def outcome(state: State, rate: Rate, cost: int, now_us: int, charged: bool) -> Outcome:
    """The figures after a call for `cost` units that were `charged` or not."""
    allowed = passes(state, rate, cost, now_us)
    remaining, reset_us = left(take(state, cost) if charged else state, rate, now_us)
    retry_us = 0 if allowed else _wait(state, rate, cost, now_us)
    return Outcome(allowed, rate.limit, remaining, retry_us, reset_us)


def _rest(state: State, rate: Rate, now_us: int) -> int:
    """What is left of the current window; all of it while the clock is behind the state."""
    return min(rate.window_us, (state[0] + 1) * rate.window_us - now_us)


def _in_use(state: State, rate: Rate, now_us: int) -> int:
    _, units, previous = state
    return units - (-previous * _rest(state, rate, now_us) // rate.window_us)


def _wait(state: State, rate: Rate, cost: int, now_us: int) -> int:
    """Microseconds until `cost` fits, if nothing else happens."""
    if rate.limit == 0 or cost > rate.limit:
        return NEVER
    number, units, previous = state
    window_us = rate.window_us
    room = rate.limit - units - cost
    if room >= 0:  # enough of the previous window must go out of view; the next window may come first
        rest = room * window_us // previous if previous else window_us
        return (number + 1) * window_us - min(rest, window_us) - now_us
    rest = (rate.limit - cost) * window_us // units
    return (number + 2) * window_us - min(rest, window_us) - now_us


def _reset(state: State, rate: Rate, now_us: int) -> int:
    number, units, previous = state
    if units:
        return (number + 2) * rate.window_us - now_us
    return (number + 1) * rate.window_us - now_us if previous else 0
