"""What a limiter is: slow, plain, in exact fractions, and written from the definitions alone.

A budget (see `budgets.py`) says how its use falls from now on if nothing else happens, as the corner points of a line. All
figures follow from that, in the same way for every algorithm:

- a cost passes when what is in use leaves room for it; what adds nothing passes, unless the limit is 0;
- `remaining` is the room, whole units of it;
- `retry_after` is the first whole microsecond at which there will be room for the cost;
- `reset_after` is the first whole microsecond at which nothing will be in use.

Several charges are judged in order, and each needs room beside those before it on the same budget.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple

from ratelimit import MemoryStore, Rate
from ratelimit.outcome import MAX_SKEW_US, NEVER, TAKE, Charge, Outcome
from ratelimit.stores.base import Share
from tests.model.budgets import Budget, Course, new


class Ban(NamedTuple):
    since_us: int
    until_us: int
    forgotten_us: int
    strikes: int


def first_instant(course: Course, room: int) -> int | None:
    """The first whole microsecond at which no more than `room` is in use; None if there is none."""
    for (start, used), (end, left) in pairwise(course):
        if used <= room:
            return ceil(start)
        if left <= room:
            return ceil(start + Fraction(used - room) / (used - left) * (end - start))
    end, left = course[-1]
    return ceil(end) if left <= room else None


def budget_name(charge: Charge) -> Hashable:
    return charge.key, charge.rate.algorithm, charge.rate.window, charge.member is None


class Model:
    """Budgets and bans by name; a store, as far as a sync limiter needs one."""

    holds = MemoryStore.holds

    def __init__(self) -> None:
        self.budgets: dict[Hashable, Budget] = {}
        self.bans: dict[str, Ban] = {}

    def counter(self, head: str, rate: Rate) -> None:
        """None: every check goes through `apply`."""

    def joint(self, shares: Sequence[Share], one_caller: bool) -> None:
        """None: every check goes through `apply`."""

    def budget(self, charge: Charge) -> Budget:
        return self.budgets.get(budget_name(charge)) or new(charge)

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        """One outcome for each charge: all that are enforced are taken, or nothing is. A rule in shadow takes all or nothing
        too, and never stops the others."""
        passing = self._passing(charges, now_us)
        refused = [charge for charge, passes in zip(charges, passing, strict=True) if not passes]
        goes_on = not any(charge.enforce for charge in refused)
        silent = {charge.rule for charge in refused}
        found = []
        for at, charge in enumerate(charges):
            if mode == TAKE and goes_on and (charge.enforce or charge.rule not in silent):
                self.budgets[budget_name(charge)] = self.budget(charge).take(charge, now_us)
            found.append(self._figures(charges[: at + 1], passing[at], now_us))
        if mode == TAKE:
            for at, charge in enumerate(charges):
                if charge.bans_us and not passing[at] and self._could_pass(charge):
                    self._ban(charge, charges, now_us)
                    found[at] = self._banned(charge, now_us)
        return found

    def settle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
        """Adds costs to what was taken at `taken_us`, negative ones too, without asking."""
        for charge in charges:
            self.budgets[budget_name(charge)] = self.budget(charge).settle(charge, now_us, taken_us)

    def clear(self, charges: Sequence[Charge], now_us: int) -> None:
        """Forgets counts and bans."""
        for charge in charges:
            self.budgets[budget_name(charge)] = self.budget(charge).clear(now_us)
            self.bans.pop(charge.ban_key, None)

    def room(self, charge: Charge, now_us: int) -> int:
        """Whole units that are left."""
        in_use = self.budget(charge).course(charge.rate, now_us)[0][1]
        return max(0, floor(charge.rate.capacity - in_use)) if charge.rate.limit else 0

    def ban(self, charge: Charge, now_us: int) -> Ban | None:
        """The last ban, until it is forgotten: so long that the next one's place in a row is known."""
        ban = self.bans.get(charge.ban_key)
        return ban if ban and now_us < ban.forgotten_us and ban.since_us - now_us <= MAX_SKEW_US else None

    def is_banned(self, charge: Charge, now_us: int) -> bool:
        ban = self.ban(charge, now_us)
        return ban is not None and now_us < ban.until_us

    def _passing(self, charges: Sequence[Charge], now_us: int) -> list[bool]:
        passing: list[bool] = []
        for at, charge in enumerate(charges):
            beside = [one for one, passes in zip(charges[:at], passing, strict=True) if passes]
            passing.append(not self.is_banned(charge, now_us) and self._has_room(charge, beside, now_us))
        return passing

    def _has_room(self, charge: Charge, beside: Sequence[Charge], now_us: int) -> bool:
        budget, rate = self.budget(charge), charge.rate
        earlier = [one for one in beside if budget_name(one) == budget_name(charge)]
        before, after = budget.adds(earlier, now_us), budget.adds([*earlier, charge], now_us)
        in_use = budget.course(rate, now_us)[0][1]
        return rate.limit > 0 and (after == before or in_use + after <= rate.capacity)

    def _figures(self, charges: Sequence[Charge], passes: bool, now_us: int) -> Outcome:
        """The outcome of the last of `charges`; what was taken is in its budget already."""
        charge, rate = charges[-1], charges[-1].rate
        if self.is_banned(charge, now_us):
            return self._banned(charge, now_us)
        needed = new(charge).adds([one for one in charges if budget_name(one) == budget_name(charge)], now_us)
        course = self.budget(charge).course(rate, now_us)
        retry_us = 0
        if not passes:
            instant = first_instant(course, rate.capacity - needed) if rate.limit else None
            retry_us = NEVER if instant is None else instant - now_us
        reset = first_instant(course, 0)
        return Outcome(
            passes, rate.capacity, self.room(charge, now_us), retry_us, 0 if reset is None else reset - now_us
        )

    def _ban(self, charge: Charge, charges: Sequence[Charge], now_us: int) -> None:
        """Bans, unless a ban holds already. The counts of its rule begin anew."""
        if self.is_banned(charge, now_us):
            return
        before, longest_us = self.ban(charge, now_us), max(charge.bans_us)
        strikes = before.strikes + 1 if before else 1
        until_us = now_us + charge.bans_us[min(strikes, len(charge.bans_us)) - 1]
        forgotten_us = until_us + longest_us if len(charge.bans_us) > 1 else until_us
        self.bans[charge.ban_key] = Ban(now_us, until_us, forgotten_us, strikes)
        for one in charges:
            if one.ban_key == charge.ban_key:
                self.budgets[budget_name(one)] = self.budget(one).clear(now_us)

    def _banned(self, charge: Charge, now_us: int) -> Outcome:
        wait_us = self.bans[charge.ban_key].until_us - now_us
        retry_us = wait_us if self._could_pass(charge) else NEVER
        return Outcome(False, charge.rate.capacity, 0, retry_us, wait_us, banned=True)

    def _could_pass(self, charge: Charge) -> bool:
        """Some time, with nothing in use: what never could is no sign of abuse, and no wait helps it."""
        return charge.rate.limit > 0 and charge.cost <= charge.rate.capacity
