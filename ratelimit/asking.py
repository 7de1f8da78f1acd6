"""What a limiter asks its store for, and what it makes of the answer: the general way, for every rule.

Rules:
- Planned charges become one decision, in one round trip. What is prepared (`prepared.py`) decides the same with less to do.
- A store that fails never raises: the outage policy of each rule decides. A mistake in the configuration is no outage.
- While limits are disabled the store is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ratelimit import events
from ratelimit import settings as settings_module
from ratelimit.compiling import mypyc_attr
from ratelimit.decision import UNLIMITED, Decision, Part, decided
from ratelimit.errors import ConfigurationError
from ratelimit.grounds import Grounds
from ratelimit.identity import Identity
from ratelimit.multiplier import Multiplier
from ratelimit.outage import OutageLog, policy_outcomes
from ratelimit.outcome import LOOK, TAKE, Charge, Outcome
from ratelimit.plan import Ask, Call, Clock, Cost, Planner, RuleLike
from ratelimit.rates import MAX_LIMIT
from ratelimit.reservation import Reservation
from ratelimit.settings import Settings
from ratelimit.stores.base import Store
from ratelimit.stores.memory import MemoryStore
from ratelimit.tiers import Tiers

NO_ATTRIBUTES: Final[Mapping[str, Any]] = MappingProxyType({})


@mypyc_attr(allow_interpreted_subclasses=True)
class Asking(Grounds):
    """Plans, asks and decides: what a call is planned for anew, whatever was asked before."""

    def __init__(
        self,
        store: Store | str | None,
        settings: Settings | None,
        clock: Clock,
        tiers: Tiers,
        multiplier: Multiplier | None,
    ) -> None:
        super().__init__(store, settings, clock, Planner(tiers, multiplier))
        self._outage = OutageLog()
        self._local = MemoryStore()  # takes over for rules whose outage policy is "local"
        self._check_policies()
        self._follow_settings()

    def plan(self, calls: Sequence[Call], protocol: str = "") -> list[Ask]:
        """What a store would be asked on `calls`: a charge for each rate, none where no rule means them. No round trip.

        For code that explains: `look` gives the decision on a plan, of which each part is that of one ask. Raises
        `ConfigurationError` for a call that cannot be made, and for a rule that the store cannot hold.
        """
        if not calls:
            raise ConfigurationError("nothing to check: give at least one call")
        settings = self.settings
        asks = [ask for call in calls for ask in self._planner.asks(call, settings, protocol)]
        self._check_holds(asks)
        return asks

    def look(self, asks: Sequence[Ask], now_us: int) -> Decision:
        """What `peek` says of what was planned, at `now_us`; writes nothing. One round trip."""
        return self._asked(asks, LOOK, "", now_us)

    async def alook(self, asks: Sequence[Ask], now_us: int) -> Decision:
        """`look` for an event loop."""
        return await self._aasked(asks, LOOK, "", now_us)

    def peek(
        self,
        rule: RuleLike,
        identity: Identity | str,
        *,
        key: str = "user_or_ip",
        cost: Cost = 1,
        group: str | None = None,
        attributes: Mapping[str, Any] = NO_ATTRIBUTES,
        protocol: str = "",
    ) -> Decision:
        """Whether `check` would pass now, and the figures as they are; writes nothing. One round trip."""
        return self.look(self.plan([Call(rule, identity, group, cost, key, attributes)], protocol), self._clock())

    async def apeek(
        self,
        rule: RuleLike,
        identity: Identity | str,
        *,
        key: str = "user_or_ip",
        cost: Cost = 1,
        group: str | None = None,
        attributes: Mapping[str, Any] = NO_ATTRIBUTES,
        protocol: str = "",
    ) -> Decision:
        """`peek` for an event loop."""
        asks = self.plan([Call(rule, identity, group, cost, key, attributes)], protocol)
        return await self.alook(asks, self._clock())

    def check_many(self, calls: Sequence[Call], *, protocol: str = "") -> Decision:
        """One decision on several calls: all are taken or, if one does not pass, none. One round trip.

        The decision's figures are those of the call that constrains most. On Redis Cluster there is a round trip for each
        caller among the calls, and what one refuses is given back to the others.
        """
        return self._asked(self.plan(calls, protocol), TAKE, protocol, self._clock())

    async def acheck_many(self, calls: Sequence[Call], *, protocol: str = "") -> Decision:
        """`check_many` for an event loop."""
        return await self._aasked(self.plan(calls, protocol), TAKE, protocol, self._clock())

    def reserve(
        self,
        rule: RuleLike,
        identity: Identity | str,
        *,
        key: str = "user_or_ip",
        cost: Cost = 1,
        group: str | None = None,
        attributes: Mapping[str, Any] = NO_ATTRIBUTES,
        protocol: str = "",
    ) -> Reservation:
        """Takes an estimated `cost`, to be settled when the real one is known. One round trip, and one to settle.

        Look at `.decision` first: nothing was taken when it is a denial. Arguments as in `check`.
        """
        reservation = Reservation.of(self, Call(rule, identity, group, cost, key, attributes), protocol)
        reservation.decision = self._asked(reservation.asks, TAKE, protocol, reservation.taken_us)
        return reservation

    async def areserve(
        self,
        rule: RuleLike,
        identity: Identity | str,
        *,
        key: str = "user_or_ip",
        cost: Cost = 1,
        group: str | None = None,
        attributes: Mapping[str, Any] = NO_ATTRIBUTES,
        protocol: str = "",
    ) -> Reservation:
        """`reserve` for an event loop."""
        reservation = Reservation.of(self, Call(rule, identity, group, cost, key, attributes), protocol)
        reservation.decision = await self._aasked(reservation.asks, TAKE, protocol, reservation.taken_us)
        return reservation

    def unlimited(self, identity: Identity | str) -> Decision:
        """The decision on a call that nothing limits."""
        key = identity if isinstance(identity, str) else identity.key()
        return decided([Part("unlimited", UNLIMITED, Outcome(True, MAX_LIMIT, MAX_LIMIT, 0, 0), key)])

    def _asked(self, asks: Sequence[Ask], mode: int, protocol: str, now_us: int) -> Decision:
        if not asks or self.settings.disable:
            return self._let_through(asks)
        try:
            outcomes = self.store.apply([ask.charge for ask in asks], now_us, mode)
        except Exception as error:
            return self._degraded(asks, error, mode, protocol, now_us)
        return self._decided(asks, outcomes, mode, protocol)

    async def _aasked(self, asks: Sequence[Ask], mode: int, protocol: str, now_us: int) -> Decision:
        if not asks or self.settings.disable:
            return self._let_through(asks)
        try:
            outcomes = await self.store.aapply([ask.charge for ask in asks], now_us, mode)
        except Exception as error:
            return self._degraded(asks, error, mode, protocol, now_us)
        return self._decided(asks, outcomes, mode, protocol)

    def _let_through(self, asks: Sequence[Ask]) -> Decision:
        if not asks:
            return self.unlimited("")
        full = [ask.charge.rate.capacity for ask in asks]
        return _decision(asks, [Outcome(True, capacity, capacity, 0, 0) for capacity in full])

    def _decided(self, asks: Sequence[Ask], outcomes: Sequence[Outcome], mode: int, protocol: str) -> Decision:
        self._outage.answered()
        decision = _decision(asks, outcomes)
        if mode == TAKE:
            events.decided(decision, protocol)
        return decision

    def _degraded(self, asks: Sequence[Ask], error: Exception, mode: int, protocol: str, now_us: int) -> Decision:
        if isinstance(error, ConfigurationError):  # no outage: the store says what to mend
            raise error
        self._outage.failed(error, self.settings.fail_open)
        outcomes = policy_outcomes(asks, self.settings.fail_open, now_us, mode, self._local)
        decision = _decision(asks, outcomes, degraded=True)
        if mode == TAKE:
            events.decided(decision, protocol)
        return decision

    def _clearing(self, call: Call) -> list[Charge]:
        asks = self._planner.clearing(call, self.settings)
        self._check_holds(asks)
        return [ask.charge for ask in asks]

    def _check_holds(self, asks: Sequence[Ask]) -> None:
        holds = self.store.holds
        for ask in asks:
            needed = ask.charge.needs()
            if not needed <= holds:
                raise ConfigurationError(
                    f"rule {ask.charge.rule!r} with the rate {str(ask.charge.rate)!r} needs "
                    f"{', '.join(sorted(needed - holds))}; {type(self.store).__name__} holds {', '.join(sorted(holds))}: "
                    "change the rule, or count in memory or Redis"
                )

    def _check_policies(self) -> None:
        """What a file holds is known now: a rule that the store cannot hold need not wait for its first call."""
        for name, policy in self.policies.items():
            try:
                self._clearing(Call(policy, ""))
            except ConfigurationError as error:
                raise ConfigurationError(f"{settings_module.PREFIX}POLICY_FILE: {name}: {error}") from None


def _decision(asks: Sequence[Ask], outcomes: Sequence[Outcome], degraded: bool = False) -> Decision:
    parts = [
        Part(ask.charge.rule, ask.charge.rate, outcome, ask.caller, ask.charge.enforce)
        for ask, outcome in zip(asks, outcomes, strict=True)
    ]
    return decided(parts, degraded)
