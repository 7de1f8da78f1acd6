"""Reserve now, settle when the real cost is known: for GraphQL cost, model tokens, bytes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from ratelimit.errors import ConfigurationError
from ratelimit.keys import encoded
from ratelimit.outcome import Charge
from ratelimit.plan import Ask, Call, check_cost
from ratelimit.rates import MAX_LIMIT

if TYPE_CHECKING:
    from ratelimit.asking import Asking
    from ratelimit.decision import Decision


logger = logging.getLogger("ratelimit")


class Reservation:
    """Units taken on an estimate. `decision` tells whether they were.

    The first of `settle`, `cancel` and their asyncio twins counts; later ones change nothing, nor does any when nothing was
    taken: on a denial, in an outage, while limits are disabled. As a context manager, sync or async, it leaves the estimate
    as it is when the block ends and nothing was settled, and gives it back when the block raises. Units are given back to
    the window they were taken in; what a bucket has freed meanwhile is not freed again. Settling raises `StoreError` when
    the store fails, and is then still to be done; what a block raised is never hidden by that.
    """

    decision: Decision

    def __init__(self, limiter: Asking, units: Sequence[Ask], cost: int, taken_us: int) -> None:
        self._limiter = limiter
        self._units = () if limiter.settings.disable else units
        self._cost = cost
        self._unsettled = [True]  # who pops it settles: one step, so that no two threads both do
        self.taken_us = taken_us
        self.asks = [_times(ask, cost) for ask in units]

    @classmethod
    def of(cls, limiter: Asking, call: Call, protocol: str) -> Reservation:
        """What `call` is to take. Planned for one unit, so that the real cost can be charged at the same weights."""
        cost = check_cost(call.cost)
        units = limiter.plan([call._replace(cost=1)], protocol)
        for ask in units:
            if ask.charge.member is not None:
                raise ConfigurationError(
                    f"rule {ask.charge.rule!r} counts different values, which have no cost to reserve; use check"
                )
        return cls(limiter, units, cost, limiter.now())

    def settle(self, actual: int) -> None:
        """Makes the cost `actual` units: more are taken even beyond the limit, fewer are given back. One round trip."""
        with self._once(actual) as charges:
            if charges:
                self._limiter.store.settle(charges, self._limiter.now(), self.taken_us)
                self._limiter.forget_denials(charge.caller for charge in charges)

    async def asettle(self, actual: int) -> None:
        """`settle` for an event loop."""
        with self._once(actual) as charges:
            if charges:
                await self._limiter.store.asettle(charges, self._limiter.now(), self.taken_us)
                self._limiter.forget_denials(charge.caller for charge in charges)

    def cancel(self) -> None:
        """Gives everything back. One round trip."""
        self.settle(0)

    async def acancel(self) -> None:
        """`cancel` for an event loop."""
        await self.asettle(0)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            try:
                self.cancel()
            except Exception as failure:
                self._log_failure(failure)

    async def __aenter__(self) -> Reservation:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            try:
                await self.acancel()
            except Exception as failure:
                self._log_failure(failure)

    def _log_failure(self, failure: Exception) -> None:
        what = f"{type(failure).__name__}: {failure}"
        logger.warning("rate limit reservation could not be given back: rule=%s: %s", encoded(self.decision.rule), what)

    @contextmanager
    def _once(self, actual: int) -> Iterator[list[Charge]]:
        """What makes the cost `actual`, for the first who asks; nothing for later ones. A failure leaves it to be done."""
        charges = self._difference(actual)
        try:
            self._unsettled.pop()
        except IndexError:
            yield []
            return
        try:
            yield charges
        except Exception:
            self._unsettled.append(True)
            raise

    def _difference(self, actual: int) -> list[Charge]:
        check_cost(actual)
        decision = self.decision
        if not decision.allowed or decision.degraded or actual == self._cost:
            return []
        held_back = decision.shadow_denials  # a rule in shadow that would have refused took nothing
        taken = [ask for ask in self._units if ask.charge.cost and ask.charge.rule not in held_back]
        for ask in taken:
            _times(ask, actual)
        return [_times(ask, actual - self._cost).charge for ask in taken]


def _times(ask: Ask, units: int) -> Ask:
    charge = ask.charge
    if charge.cost * units > MAX_LIMIT:
        raise ConfigurationError(f"rule {charge.rule!r}: cost {charge.cost} times {units} is more than {MAX_LIMIT}")
    return ask._replace(charge=charge._replace(cost=charge.cost * units))
