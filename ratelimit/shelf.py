"""What a limiter has prepared, kept for the checks that follow.

Rules:
- A `Shelf` holds for one state of the settings. When they change, the limiter begins another one. They are looked up after the
  shelf was taken, never before: what was made by the old ones stays on the old shelf.
- A rule is known by its name, else by its place in memory. What is prepared of it holds it, so that no other rule gets its
  place; one that cannot be prepared is not held, and whatever gets its place goes the general way, which decides the same.
- Groups and rules may be made for each call: what is full is emptied, and prepared again as it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import time_ns
from typing import TYPE_CHECKING

from ratelimit.identity import Identity
from ratelimit.joint import PreparedJoint
from ratelimit.meant import Matching, matching
from ratelimit.outcome import Charge
from ratelimit.plan import Call, Clock, Planner, RuleLike
from ratelimit.prepared import MAX_PREPARED, Leases, Prepared, prepare
from ratelimit.rules import Policy, Rule

if TYPE_CHECKING:
    from ratelimit.grounds import Grounds


class Shelf:
    """The prepared rules of one limiter. `known` has them by `place_of`, with None for what goes the general way; without
    `clock`, the wall's tells them the time."""

    __slots__ = ("_clock", "_leases", "_matching", "_planner", "known")

    def __init__(self, planner: Planner, clock: Clock | None) -> None:
        self._planner = planner
        self._clock = clock
        self.known: dict[object, Prepared | PreparedJoint | None] = {}
        self._matching: dict[object, Matching | None] = {}
        self._leases: Leases = {}

    def prepared(self, rule: RuleLike, group: str | None, grounds: Grounds) -> Prepared | PreparedJoint | None:
        """What can be found out of `rule` in `group` before a check; None if it has to go the general way."""
        place, known = place_of(rule, group), self.known
        found = known.get(place)
        if found is None and place not in known:
            found = prepare(rule, group, grounds.settings, grounds.store, self._planner, self._leases, self._clock)
            if len(known) >= MAX_PREPARED:
                known.clear()
            known[place] = found
        return found

    def meant(self, call: Call, protocol: str, grounds: Grounds) -> Rule | Policy | None:
        """The rules that mean the call, if that has to be found out, and if they are prepared."""
        found = self._matched(call.rule, grounds)
        if found is None or call.group is not None or not isinstance(call.identity, (str, Identity)):
            return None
        meant = found.meant(call, protocol)
        return None if meant is None or self.prepared(meant, None, grounds) is None else meant

    def forget(self, charges: Sequence[Charge]) -> None:
        """Has the next checks ask the store for what was counted by `charges`."""
        self.forget_denials(charge.caller for charge in charges)
        for charge in charges:
            self._drop_leases(charge.caller, charge.head)

    def forget_caller(self, caller: str) -> None:
        """Has the next checks of the caller ask the store, whatever the rule."""
        self.forget_denials([caller])
        self._drop_leases(caller)

    def forget_denials(self, callers: Iterable[str]) -> None:
        """Has the next checks of these callers ask the store, whatever it denied them before."""
        now_us = time_ns() // 1000 if self._clock is None else self._clock()
        for caller in set(callers):
            for prepared in list(self.known.values()):
                if prepared is not None:
                    prepared.forget_denials(caller, now_us)

    def _drop_leases(self, caller: str, head: str | None = None) -> None:
        """What is in hand for the caller was counted under keys that are gone; with a head, under that one."""
        for (place, *_), leased in list(self._leases.items()):
            if head is None or place == head:
                leased.hands.drop(caller)

    def _matched(self, rule: RuleLike, grounds: Grounds) -> Matching | None:
        place, known = place_of(rule, None), self._matching
        found = known.get(place)
        if found is None and place not in known:
            found = matching(rule, self._planner.named(rule, grounds.settings))
            if len(known) >= MAX_PREPARED:
                known.clear()
            known[place] = found
        return found


def place_of(rule: RuleLike, group: str | None) -> object:
    """What a rule is known by in a group. Checks say it themselves: a call would cost them more than it says."""
    place: object = rule if type(rule) is str else id(rule)
    return place if group is None else (place, group)
