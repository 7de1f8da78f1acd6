"""Several rates that are always asked together, prepared: a policy, a rule or category with more than one rate, and rules whose
caller or cost takes more than a look.

Rules:
- Prepared is what is enforced, for every call, without bans and without distinct counting, and does not depend on attributes
  of the call. Everything else goes the general way (`asking.py`), which decides the same.
- The rest is as for a single rate (`prepared.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import time_ns
from types import MappingProxyType
from typing import Any, Final

from ratelimit.categories import Category
from ratelimit.decision import Decision
from ratelimit.identity import Identity
from ratelimit.joint_quota import JointQuota
from ratelimit.keys import further_head, head
from ratelimit.plan import Clock, Planner, RuleLike, not_a_caller
from ratelimit.quota import Quota
from ratelimit.rates import Rate
from ratelimit.rules import PLAIN_BY, Policy, Rule
from ratelimit.settings import Settings
from ratelimit.stores.base import Callers, Share, Store
from ratelimit.tiers import tier_of

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_MAX_QUOTAS: Final = 256


@dataclass(frozen=True, slots=True)
class Counted:
    """What of a rule or category depends neither on the caller nor on the call. `by` is None where the call says by whom it
    counts, a strategy's name, or a rule that finds the caller."""

    name: str
    rate: Rate
    tiered: bool
    by: str | Rule | None = None
    weight: int = 1


class PreparedJoint:
    """What is counted together, for any caller. `untiered` is the quota of a caller without a tier."""

    __slots__ = (
        "_by",
        "_clock",
        "_counted",
        "_denials_us",
        "_places",
        "_planner",
        "_prefix",
        "_quotas",
        "_store",
        "rule",
        "untiered",
    )

    def __init__(
        self,
        rule: RuleLike,
        counted: Sequence[Counted],
        settings: Settings,
        store: Store,
        planner: Planner,
        clock: Clock | None,
    ) -> None:
        self.rule = rule  # kept, for it is known by its place in memory
        self._clock = clock
        self._counted = counted
        self._prefix = settings.key_prefix
        self._denials_us = settings.denial_cache_ms * 1000
        self._store = store
        self._planner = planner if any(one.tiered for one in counted) else None
        # How each different caller is found, and for each rate which of them it counts for.
        places = [_place(one.by) for one in counted]
        self._by = list({place: one.by for place, one in zip(places, counted, strict=True)}.values())
        different = list(dict.fromkeys(places))
        self._places = [
            different.index(place) for place, one in zip(places, counted, strict=True) for _ in one.rate.parts
        ]
        self._quotas: dict[object, JointQuota] = {}
        self.untiered = self._made([one.rate for one in counted])

    # The type is that of `Prepared.of`: what either gives need not be boxed, then, in compiled code.
    def of(self, identity: Identity, strategy: str) -> tuple[Quota | JointQuota, Callers]:
        """What the caller has, and whom the call counts for: by the rules' own characteristics, else by `strategy`."""
        if not isinstance(identity, Identity):
            raise not_a_caller(identity)
        return self._quota(identity), self._caller(identity, strategy)

    def decide(self, identity: Identity, strategy: str, cost: int) -> Decision | None:
        """See `Prepared.decide`."""
        now_us = time_ns() // 1000 if self._clock is None else self._clock()
        quota = self._quota(identity)
        decision: Decision = quota.decide(quota, self._caller(identity, strategy), cost, now_us)
        return decision

    def _quota(self, identity: Identity) -> JointQuota:
        planner = self._planner
        if planner is None:
            return self.untiered
        if not planner.by_tier:
            return self._of(tuple(self._rates(planner, identity)), planner, identity)
        return self._of(tier_of(identity), planner, identity)

    def _caller(self, identity: Identity | str, strategy: str) -> Callers:
        first = self._by[0] or strategy
        if len(self._by) == 1 and not isinstance(first, Rule):
            return _caller(first, identity)
        # Of what a rule finds, no text: that would be taken for one that names a caller, and looked up again.
        found = [_caller(by or strategy, identity) for by in self._by]
        return tuple([found[place] for place in self._places])

    def forget_denials(self, caller: str, now_us: int) -> None:
        """Has the caller's next check ask the store, whatever one that began before `now_us` is told."""
        for quota in [self.untiered, *self._quotas.values()]:
            quota.denials.drop(caller, now_us)

    def _of(self, place: object, planner: Planner, identity: Identity) -> JointQuota:
        quota = self._quotas.get(place)
        if quota is None:
            if len(self._quotas) >= _MAX_QUOTAS:
                self._quotas = {}
            quota = self._quotas[place] = self._made(self._rates(planner, identity))
        return quota

    def _rates(self, planner: Planner, identity: Identity) -> list[Rate]:
        return [planner.scaled(one.rate, identity) if one.tiered else one.rate for one in self._counted]

    def _made(self, rates: Sequence[Rate]) -> JointQuota:
        shares, names = [], []
        for one, rate in zip(self._counted, rates, strict=True):
            first = head(self._prefix, one.name)
            whole, *others = rate.parts
            shares += [
                Share(first, whole, one.weight),
                *(Share(further_head(first, other), other, one.weight) for other in others),
            ]
            names += [one.name] * len(rate.parts)
        counter = self._store.joint(shares, len(self._by) == 1)
        # A text that names a caller is that caller whatever the strategy, but not whatever the rule.
        named = partial(self._caller, strategy="") if any(isinstance(by, Rule) for by in self._by) else None
        return JointQuota(counter, names, shares, named, self._denials_us)


def prepare_joint(
    rule: RuleLike,
    found: Category | Rate | Rule | Policy,
    group: str | None,
    settings: Settings,
    store: Store,
    planner: Planner,
    clock: Clock | None,
) -> PreparedJoint | None:
    """`found`, which `rule` is or names, ready for any caller; None when it must go the general way."""
    rules = found.rules if isinstance(found, Policy) else (found,)
    counted = [_counted(one, group, settings) for one in rules]
    known = [one for one in counted if one is not None]
    mixed = group is not None and len(rules) > 1
    algorithms = {part.algorithm for one in known for part in one.rate.parts}
    if mixed or len(known) < len(counted) or not algorithms <= store.holds:
        return None
    if not planner.scales and any(one.tiered for one in known):
        return None
    prepared = PreparedJoint(rule, known, settings, store, planner, clock)
    return prepared if prepared.untiered.counter is not None else None


def _counted(found: Category | Rate | Rule, group: str | None, settings: Settings) -> Counted | None:
    """What is counted for one rule, if that can be said before a call."""
    if isinstance(found, Category):
        return Counted(group or found.name, settings.rate(found), tiered=True)
    if isinstance(found, Rate):
        return Counted(group or "default", found, tiered=False)
    source, by = found.rate, found.by
    preparable = (found.action, found.ban_for, found.count_distinct) == ("enforce", (), None) and found.cost > 0
    if not preparable or found.match or callable(source) or any(_of_call(one) for one in by):  # type: ignore[union-attr]
        return None
    rate: Any = settings.rate(source) if isinstance(source, Category) else source
    only: Any = by[0] if len(by) == 1 else None  # type: ignore[arg-type, index]
    strategy = "token_or_ip" if only == "token" else only
    return Counted(group or found.name, rate, found.tiered, strategy if only in PLAIN_BY else found, found.cost)


def _of_call(characteristic: object) -> bool:
    """Whether a characteristic is an attribute, which a call may bring."""
    return not callable(characteristic) and characteristic not in PLAIN_BY and characteristic != "global"


def _place(by: str | Rule | None) -> object:
    """The same for what finds the same caller."""
    return by.by if isinstance(by, Rule) else by


def _caller(by: str | Rule, identity: Identity | str) -> str:
    if isinstance(by, Rule):
        return by.caller(identity, _NONE)
    return identity if isinstance(identity, str) else identity.key(by)
