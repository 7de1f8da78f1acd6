"""A store whose counters take every charge that they can take, as the engine asks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ratelimit.joint_quota import JointQuota
from ratelimit.outcome import TAKE, Charge, Outcome
from ratelimit.quota import Quota
from ratelimit.stores.base import Share, Store
from ratelimit.transaction import budget


def is_plain(charges: Sequence[Charge], mode: int) -> bool:
    """Whether a counter can take them."""
    if len(charges) != 1 or mode != TAKE:
        return False
    (charge,) = charges
    return charge.enforce and not charge.bans_us and charge.member is None and charge.cost > 0


class General:
    """The store as it is. `counted` tells how often a counter took a charge."""

    def __init__(self, store: Store) -> None:
        self.counted = 0
        self.holds = store.holds
        self.settle, self.clear, self.close = store.settle, store.clear, store.close
        self._store = store

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        return self._store.apply(charges, now_us, mode)


class Counted(General):
    """With its counters."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._quotas: dict[Any, Quota] = {}

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        if not is_plain(charges, mode):
            return super().apply(charges, now_us, mode)
        (charge,) = charges
        self.counted += 1
        quota, caller, cost = self._quota(charge), charge.caller, charge.cost
        if quota.decide is None:
            return [quota.part(caller, cost, quota.take(caller, cost, now_us)).outcome]
        decision = quota.decide(quota, caller, cost, now_us)
        (part,) = decision.parts
        assert decision.allowed == part.outcome.allowed
        return [part.outcome]

    def _quota(self, charge: Charge) -> Quota:
        """Kept, as the engine keeps it: what a counter remembers must not mislead it."""
        place = charge.head, charge.rate
        if place not in self._quotas:
            counter = self._store.counter(charge.head, charge.rate)
            assert counter is not None
            self._quotas[place] = Quota(charge.rule, charge.rate, counter)
        return self._quotas[place]


def is_joint(charges: Sequence[Charge], mode: int) -> bool:
    """Whether a joint counter can take them."""
    budgets = {budget(charge) for charge in charges}
    return len(budgets) == len(charges) and all(is_plain([charge], mode) for charge in charges)


class Joined(General):
    """With joint counters. `counted` tells how often they took charges."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._quotas: dict[Any, JointQuota] = {}

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        if not is_joint(charges, mode):
            return super().apply(charges, now_us, mode)
        self.counted += 1
        costs = {charge.cost for charge in charges}
        cost = costs.pop() if len(costs) == 1 else 1
        quota = self._quota(charges, cost)
        each = tuple(charge.caller for charge in charges)
        callers = each[0] if len(set(each)) == 1 else each
        if quota.decide is None:
            parts = quota.parts(callers, cost, quota.take(callers, cost, now_us))
        else:
            decision = quota.decide(quota, callers, cost, now_us)
            parts = decision.parts
            assert decision.allowed == all(part.outcome.allowed for part in parts)
        asked = [(charge.rule, charge.rate, charge.caller) for charge in charges]
        assert [(part.rule, part.rate, part.key) for part in parts] == asked
        return [part.outcome for part in parts]

    def _quota(self, charges: Sequence[Charge], cost: int) -> JointQuota:
        """Kept, as the engine keeps it."""
        shares = tuple(Share(charge.head, charge.rate, charge.cost // cost) for charge in charges)
        if shares not in self._quotas:
            counter = self._store.joint(shares, len({charge.caller for charge in charges}) == 1)
            self._quotas[shares] = JointQuota(counter, [charge.rule for charge in charges], shares, None)
        return self._quotas[shares]
