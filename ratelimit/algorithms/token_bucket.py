"""Token bucket and leaky bucket: at most `capacity` units at once, freed evenly at `limit` per window.

Rules:
- State: (time of the last change, whole units in use, millionths-of-a-second share of one more, out of the window's
  length). None is a caller never seen. Units in use are `units + share / window_us`.
- Units are freed for the time since the last change; a cost passes when `units in use + cost <= capacity`.
- A refused cost changes nothing, the time included: polling does not eat the refill.
- The time never moves back. While the clock is behind it nothing is freed and nothing minted; a state more than
  `MAX_SKEW_US` ahead was left by a clock that has since been put right, and is forgotten.

A leaky bucket (as a meter) is the same arithmetic with a capacity of 1 unless a burst is given: evenly spaced calls.
Source: ITU-T I.371 (GCRA, the continuous-state leaky bucket); integers throughout, so waits are exact.
"""

from __future__ import annotations

from ratelimit.outcome import MAX_SKEW_US, NEVER, Outcome
from ratelimit.rates import Rate

State = tuple[int, ...]


def current(state: State | None, rate: Rate, now_us: int) -> State:
    """`state` as it stands at `now_us`."""
    if state is None or state[0] - now_us > MAX_SKEW_US:
        return now_us, 0, 0
    last_us, units, share = state
    if now_us <= last_us:
        return state
    level = max(0, units * rate.window_us + share - (now_us - last_us) * rate.limit)
    return now_us, *divmod(level, rate.window_us)


def passes(state: State, rate: Rate, cost: int, now_us: int) -> bool:
    """Whether `cost` units fit now; `state` is current."""
    _, units, share = state
    return rate.limit > 0 and (cost == 0 or units + cost + (share > 0) <= rate.capacity)


def take(state: State, cost: int) -> State:
    """`state` after `cost` units, negative ones to give back."""
    last_us, units, share = state
    return (last_us, units + cost, share) if units + cost >= 0 else (last_us, 0, 0)


def settle(state: State, rate: Rate, cost: int, taken_us: int) -> State:
    """`state` once `cost` more units were taken at `taken_us`, or given back: a bucket has no windows."""
    return take(state, cost)


def lifetime_us(state: State, rate: Rate, now_us: int) -> int:
    """How long `state` can matter: until nothing is in use and the clock has caught up with it."""
    return max(state[0] - now_us, _free(state, rate, 0, now_us))


def left(state: State, rate: Rate, now_us: int) -> tuple[int, int]:
    """Whole units left in `state`, and microseconds until nothing is used."""
    if rate.limit == 0:
        return 0, 0
    return max(0, rate.capacity - state[1] - (state[2] > 0)), _free(state, rate, 0, now_us)


def outcome(state: State, rate: Rate, cost: int, now_us: int, charged: bool) -> Outcome:
    """The figures after a call for `cost` units that were `charged` or not."""
    allowed = passes(state, rate, cost, now_us)
    remaining, reset_us = left(take(state, cost) if charged else state, rate, now_us)
    if allowed:
        retry_us = 0
    elif rate.limit == 0 or cost > rate.capacity:
        retry_us = NEVER
    else:
        retry_us = _free(state, rate, rate.capacity - cost, now_us)
    return Outcome(allowed, rate.capacity, remaining, retry_us, reset_us)


def _free(state: State, rate: Rate, units: int, now_us: int) -> int:
    """Microseconds from `now_us` until no more than `units` are in use, rounded up."""
    last_us, used, share = state
    over = (used - units) * rate.window_us + share
    return max(0, -(-over // rate.limit)) + last_us - now_us if over > 0 else 0
