"""A store that answers by its counters where it can, as the engine asks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ratelimit.outcome import TAKE, Charge, Outcome
from ratelimit.prepared import Quota


class Counted:
    """`store`, but a single plain charge is asked of a counter. `asked` is how many were."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._quotas: dict[Any, Quota] = {}
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        charge = charges[0]
        plain = charge.enforce and charge.cost > 0 and charge.member is None and not charge.bans_us
        if mode != TAKE or len(charges) > 1 or not plain:
            found: list[Outcome] = self._store.apply(charges, now_us, mode)
            return found
        place = charge.head, charge.rate
        quota = self._quotas.get(place) or self._quotas.setdefault(place, self._quota(charge))
        self.asked += 1
        if quota.decide is not None:
            decision = quota.decide(quota, charge.caller, charge.cost, now_us)
            assert decision.allowed == decision.parts[0].outcome.allowed
            return [part.outcome for part in decision.parts]
        return [quota.part(charge.caller, charge.cost, quota.take(charge.caller, charge.cost, now_us)).outcome]

    def _quota(self, charge: Charge) -> Quota:
        return Quota(charge.rule, charge.rate, self._store.counter(charge.head, charge.rate))
