"""Rules that were looked up, scaled and keyed once, so that the checks after the first have nothing left to find out.

Rules:
- Only plain rules are prepared here: one rate, enforced, for every call, without bans and without distinct counting. Their
  charges are the plain ones that stores have short ways for. Policies and rules with several rates are prepared in
  `joint.py`, as far as they can be; everything else goes the general way (`asking.py`), which decides the same.
- A `Prepared` holds for one limiter, its settings and its store. When settings change, the limiter begins another `Shelf`.
- What depends on the caller is not frozen: its tier and its multiplier are looked up in each check. Where an application's
  own tiers may give any rate, nothing can be prepared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

from ratelimit.categories import Category
from ratelimit.decision import Decision
from ratelimit.identity import Identity
from ratelimit.joint import PreparedJoint, prepare_joint
from ratelimit.joint_quota import JointQuota
from ratelimit.keys import head
from ratelimit.plan import Clock, Planner, RuleLike, not_a_caller
from ratelimit.quota import EVERYBODY, CommonQuota, Quota
from ratelimit.rates import Rate
from ratelimit.rules import LEASED_BY, Policy, Rule
from ratelimit.settings import Settings
from ratelimit.stores.base import Callers, Counter, LocalCounter, Store
from ratelimit.tiers import tier_of

if TYPE_CHECKING:
    from ratelimit.leases import Leased

MAX_PREPARED = 1_024
"""Rules, in groups, that a limiter keeps prepared; groups may be as many as an application likes."""
_MAX_QUOTAS: Final = 256

Leases = dict[tuple[str, Rate, int], "Leased"]
"""Counters that take leases, by the head of their keys, rate and size: however often a rule is prepared, one hand for each."""


class Prepared:
    """A rule in a group, for any caller. `untiered` is the quota of a caller without a tier."""

    __slots__ = ("_by", "_clock", "_counter", "_denials_us", "_planner", "_quotas", "_tiers", "rule", "untiered")

    def __init__(
        self,
        rule: RuleLike,
        untiered: Quota,
        by: str | None,
        planner: Planner | None,
        counter: Callable[[Rate], Counter | LocalCounter | Leased | None],
        denials_us: int,
        clock: Clock | None,
    ) -> None:
        self.rule = rule  # kept, for it is known by its place in memory
        self.untiered = untiered
        self._by = by
        self._clock = clock
        self._planner = planner  # None if the rate is the same for everybody
        self._tiers: dict[int, Quota] = {}
        self._counter = counter
        self._denials_us = denials_us
        self._quotas: dict[Rate, Quota] = {}

    def of(self, identity: Identity, strategy: str) -> tuple[Quota | JointQuota, Callers]:
        """What the caller has, and whom the call counts for: by the rule's own characteristic, else by `strategy`."""
        if not isinstance(identity, Identity):
            raise not_a_caller(identity)
        return self._quota(identity), identity.key(self._by or strategy)

    def decide(self, identity: Identity, strategy: str, cost: int) -> Decision | None:
        """The decision on a call for 1 unit or more, if no trip is needed for it: in memory, or with units in hand."""
        now_us = time_ns() // 1000 if self._clock is None else self._clock()
        planner = self._planner
        if planner is None:
            quota = self.untiered
        else:
            known = self._tiers.get(tier_of(identity))  # nobody's, where more than the tier tells
            quota = self._quota(identity) if known is None else known
        decision: Decision | None = quota.decide(quota, identity.key(self._by or strategy), cost, now_us)
        return decision

    def _quota(self, identity: Identity) -> Quota:
        untiered = self.untiered
        if self._planner is None:
            return untiered
        if not self._planner.by_tier:
            return self._of(self._planner.scaled(untiered.rate, identity))
        tier = tier_of(identity)
        quota = self._tiers.get(tier)
        if quota is None:
            quota = self._tiers[tier] = self._of(self._planner.scaled(untiered.rate, identity))
        return quota

    def _of(self, rate: Rate) -> Quota:
        untiered = self.untiered
        if rate is untiered.rate:
            return untiered
        quota = self._quotas.get(rate)
        if quota is None:
            if len(self._quotas) >= _MAX_QUOTAS:
                self._quotas = {}
            counter = self._counter(rate)
            assert counter is not None
            quota = self._quotas[rate] = type(untiered)(untiered.name, rate, counter, self._denials_us)
        return quota

    def forget_denials(self, caller: str, now_us: int) -> None:
        """Has the caller's next check ask the store, whatever one that began before `now_us` is told."""
        for quota in [self.untiered, *self._quotas.values()]:
            quota.denials.drop(caller, now_us)


def prepare(
    rule: RuleLike,
    group: str | None,
    settings: Settings,
    store: Store,
    planner: Planner,
    leases: Leases,
    clock: Clock | None = None,
) -> Prepared | PreparedJoint | None:
    """`rule`, counted in `group`, ready for any caller; None when it must go the general way. Without `clock`, the wall's tells
    the time."""
    found = planner.named(rule, settings)
    if isinstance(found, Policy) and len(found.rules) == 1:
        (found,) = found.rules
    if settings.disable:
        return None
    if isinstance(found, Policy) or (isinstance(found, Rule) and not _plain(found)):
        return prepare_joint(rule, found, group, settings, store, planner, clock)
    by: Any = None
    source: Any = found
    tiered, lease = isinstance(found, Category), 1
    if isinstance(found, Rule):
        (by,), source, tiered, lease = found.by, found.rate, found.tiered, found.lease  # type: ignore[misc]
        by = "token_or_ip" if by == "token" else by
    rate: Rate = settings.rate(source) if isinstance(source, Category) else source
    if isinstance(found, Rule):
        found.check_lease(rate)
    if rate.also:
        return prepare_joint(rule, found, group, settings, store, planner, clock)
    if rate.algorithm not in store.holds or (tiered and not planner.scales):
        return None
    name = group or ("default" if isinstance(found, Rate) else found.name)
    counter_of = partial(_counter, store, head(settings.key_prefix, name), lease, leases)
    counter = counter_of(rate)
    if counter is None:
        return None
    denials_us = settings.denial_cache_ms * 1000
    quota = (CommonQuota if by == EVERYBODY else Quota)(name, rate, counter, denials_us)
    return Prepared(rule, quota, by, planner if tiered else None, counter_of, denials_us, clock)


def _counter(store: Store, head: str, lease: int, leases: Leases, rate: Rate) -> Counter | LocalCounter | Leased | None:
    """The store's counter, or one that takes leases of it; in this process's memory there is no trip that they could save."""
    counter = store.counter(head, rate)
    if lease == 1 or counter is None or isinstance(counter, LocalCounter):
        return counter
    leased = leases.get((head, rate, lease))
    if leased is None:
        from ratelimit.leases import Leased  # brings asyncio along, as the store has done already

        if len(leases) >= MAX_PREPARED:
            leases.clear()
        leased = leases.setdefault((head, rate, lease), Leased(counter, rate, lease))
    return leased


def _plain(rule: Rule) -> bool:
    return (
        (rule.action, rule.cost, rule.count_distinct, rule.ban_for) == ("enforce", 1, None, ())
        and not rule.match
        and not callable(rule.rate)
        and len(rule.by) == 1  # type: ignore[arg-type]
        and rule.by[0] in LEASED_BY  # type: ignore[index, operator]
    )
