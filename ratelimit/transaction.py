"""The verdict on several charges at once, as every store gives it: all are taken or none.

Rules:
- Charges are judged in order; a second one on the same key meets what the first would leave.
- While a ban holds, nothing is counted for its rule.
- A call is refused when an enforced charge is banned or does not pass. Charges in shadow never refuse.
- When it is refused, nothing is taken. When it is not, every charge is, but for a rule in shadow of which one charge does
  not pass: it takes nothing, as it would if it were enforced.
- Charges on one budget add up: what a refused call is told to wait for is room for all of them.
- Every charge with bans that does not pass now, but could some time, writes its ban and forgets its count, so that the
  caller begins anew after it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

from ratelimit.algorithms.base import State, algorithm_of, can_pass, units_of
from ratelimit.outcome import MAX_SKEW_US, NEVER, Charge, Outcome


class Ban(NamedTuple):
    """A ban from `since_us` until `until_us`, the `strikes`-th one in a row, which is so until `forgotten_us`."""

    since_us: int
    until_us: int
    forgotten_us: int
    strikes: int


NO_BAN = Ban(0, 0, 0, 0)


class Verdict(NamedTuple):
    """What was found for one charge: its state before it, whether it passes, and until when a ban holds (0: none)."""

    before: State
    passes: bool
    banned_until_us: int


def judge(
    charges: Sequence[Charge],
    now_us: int,
    state_of: Callable[[Charge], State | None],
    ban_of: Callable[[Charge], Ban],
) -> tuple[list[Verdict], bool]:
    """The verdict on each charge, and whether the call may go on. `state_of` gives what is kept for a charge."""
    left: dict[Hashable, State] = {}
    values: set[Hashable] = set()
    verdicts: list[Verdict] = []
    every = True
    for charge in charges:
        algorithm, units = algorithm_of(charge), units_of(charge)
        key = budget(charge)
        found = algorithm.current(state_of(charge), charge.rate, now_us)
        before = left.get(key, found)
        if charge.member is not None:
            before = before[0], int(found[1] == 1 or (key, charge.member) in values)
        until_us = ban_of(charge).until_us if charge.ban_head else 0
        banned = until_us > now_us
        passes = not banned and algorithm.passes(before, charge.rate, units, now_us)
        if passes:
            left[key] = algorithm.take(before, units)
            if charge.member is not None and units:
                values.add((key, charge.member))
        elif charge.enforce:
            every = False
        verdicts.append(Verdict(before, passes, until_us if banned else 0))
    return verdicts, every


def budget(charge: Charge) -> Hashable:
    """What two charges must have in common to spend from one budget."""
    return charge.head, charge.caller, charge.rate.algorithm, charge.rate.window, charge.member is None


def held_back(charges: Sequence[Charge], passing: Iterable[bool]) -> set[str]:
    """The rules in shadow that take nothing, because one of their charges does not pass."""
    return {charge.rule for charge, passes in zip(charges, passing, strict=True) if not passes and not charge.enforce}


def remembered(ban: Ban | None, now_us: int) -> Ban:
    """`ban` as it counts at `now_us`. One that a clock wrote that has since been put right is forgotten."""
    if ban is None or now_us >= ban.forgotten_us or ban.since_us - now_us > MAX_SKEW_US:
        return NO_BAN
    return ban


def next_ban(ban: Ban, bans_us: Sequence[int], now_us: int) -> Ban:
    """The ban that follows `ban`.

    A rule with several lengths remembers a ban for the longest of them beyond its end, to know the next one's place.
    """
    strikes = ban.strikes + 1
    until_us = now_us + bans_us[min(strikes, len(bans_us)) - 1]
    return Ban(now_us, until_us, until_us + (max(bans_us) if len(bans_us) > 1 else 0), strikes)


def outcomes(
    charges: Sequence[Charge], verdicts: Sequence[Verdict], every: bool, write: bool, now_us: int, numbered_us: int
) -> list[Outcome]:
    """One outcome for each charge. `write` tells whether passing charges were taken, `now_us` is the store's time, and
    `numbered_us` the one that numbered clock-aligned windows."""
    asked = _Asked() if len(charges) > 1 else None
    silent = held_back(charges, [verdict.passes for verdict in verdicts]) if asked else ()
    found: list[Outcome] = []
    for charge, verdict in zip(charges, verdicts, strict=True):
        if verdict.banned_until_us:
            wait_us = verdict.banned_until_us - now_us
            retry_us = wait_us if can_pass(charge) else NEVER
            found.append(Outcome(False, charge.rate.capacity, 0, retry_us, wait_us, banned=True))
            continue
        charged = write and every and verdict.passes and (charge.enforce or charge.rule not in silent)
        state, needed = verdict.before, units_of(charge)
        if asked and not charged:
            state, needed = asked.add(charge, verdict)
            if verdict.passes:
                needed = 0
        at_us = numbered_us if charge.rate.algorithm == "fixed" else now_us
        found.append(algorithm_of(charge).outcome(state, charge.rate, needed, at_us, charged))
    return found


class _Asked:
    """What a call that takes nothing asks of each budget: its state, and the units that the charges so far need together."""

    def __init__(self) -> None:
        self._budgets: dict[Hashable, tuple[State, int]] = {}
        self._values: set[Hashable] = set()

    def add(self, charge: Charge, verdict: Verdict) -> tuple[State, int]:
        key = budget(charge)
        state, needed = self._budgets.get(key, (verdict.before, 0))
        units = units_of(charge)
        if charge.member is not None:
            state = state[0], 0
            value = key, charge.member
            units = 0 if value in self._values else units
            if units:
                self._values.add(value)
        self._budgets[key] = state, needed + units
        return state, needed + units
