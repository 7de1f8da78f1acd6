"""The limiter: from a question to a decision, sync and async with everything in common but the call of the store."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from time import time_ns
from types import MappingProxyType
from typing import Any, Final

from ratelimit import events
from ratelimit import settings as settings_module
from ratelimit.asking import Asking, system_clock
from ratelimit.compiling import mypyc_attr
from ratelimit.decision import Decision, taken
from ratelimit.errors import ConfigurationError
from ratelimit.identity import Identity
from ratelimit.joint import JointQuota, PreparedJoint
from ratelimit.multiplier import Multiplier
from ratelimit.outcome import TAKE
from ratelimit.plan import Call, Clock, Cost, RuleLike, check_cost
from ratelimit.prepared import Prepared
from ratelimit.quota import Quota
from ratelimit.rates import MAX_LIMIT
from ratelimit.reservation import Reservation
from ratelimit.settings import Settings
from ratelimit.shelf import Shelf
from ratelimit.stores.base import Store
from ratelimit.tiers import Tiers, default_tiers

_ONE: Final = 1
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@mypyc_attr(allow_interpreted_subclasses=True)
class Limiter(Asking):
    """Decides on calls, in threads and in event loops alike. One limiter made at import serves a whole process.

    `store` is a store or its URL; without one, it is the settings' (`memory://` unless set). `settings` are complete
    when given; else the process's are looked up at every check. `clock` gives whole microseconds since the epoch.
    `tiers` adapts a category's rate to the caller; `multiplier` gives a number for the caller that scales it further
    (0.01 to 100; what lies outside is clamped and logged).

    Raises `ConfigurationError` for a store URL that cannot be used, for settings that are not valid, and for a rule of
    the policy file that the store cannot hold.
    """

    def __init__(
        self,
        store: Store | str | None = None,
        *,
        settings: Settings | None = None,
        clock: Clock = system_clock,
        tiers: Tiers = default_tiers,
        multiplier: Multiplier | None = None,
    ) -> None:
        super().__init__(store, settings, clock, tiers, multiplier)
        self._wall = clock is system_clock  # the same, without a call
        self.shelf = self._empty_shelf()
        self._known = self.shelf.known  # the same, a step nearer
        self._changing = threading.Lock()
        if settings is None:
            self._watch = settings_module.Watch(self.settings_changed)
            settings_module.warn_of_unknown(os.environ)

    def check(
        self,
        rule: RuleLike,
        identity: Identity | str,
        *,
        key: str = "user_or_ip",
        cost: Cost = 1,
        group: str | None = None,
        attributes: Mapping[str, Any] = _NONE,
        protocol: str = "",
    ) -> Decision:
        """Takes `cost` units of `rule` for the caller if they are there, and says so; one round trip, atomic.

        `rule` is a category or its name (one budget wherever it is named, unless `group` says otherwise), a `Rate`
        (counted in `group`, by default `"default"`), a `Rule`, a `Policy` or the name of one in the policy file.
        `identity` is an `Identity`, counted by the strategy `key` (a rule has its own `by`), or a text that is the caller
        as it stands. A cost of 0 changes nothing. `attributes` are further facts of the call for rules to match and count
        by; `protocol` is one of them.

        A store that fails never raises: the outage policy decides, and the decision is `degraded`. Raises
        `ConfigurationError` for a rule, strategy or cost that does not exist.
        """
        place: object = rule if type(rule) is str else id(rule)
        if group is not None:
            place = place, group
        try:
            prepared = self._known[place]
        except KeyError:
            prepared = self.shelf.prepared(rule, group, self)
        if prepared is not None and (cost is _ONE or (type(cost) is int and 0 < cost <= MAX_LIMIT)):
            if isinstance(identity, str):
                quota: Quota | JointQuota = prepared.untiered
                caller: Any = identity
            else:
                quota, caller = prepared.of(identity, key)
            now_us = time_ns() // 1000 if self._wall else self._clock()
            decision: Decision | None = None
            decide = quota.decide
            if decide is not None:
                decision = decide(quota, caller, cost, now_us)
            if decision is None:
                found = quota.denials.get(caller, cost, now_us)
                if found is None:
                    try:
                        found = quota.take(caller, cost, now_us)
                    except Exception as error:
                        call = Call(rule, identity, group, cost, key, attributes)
                        return self._degraded(self.plan([call], protocol), error, TAKE, protocol, now_us)
                    self._outage.answered()
                    quota.heed(caller, cost, now_us, found)
                decision = taken(quota, caller, cost, found)
            if not decision.allowed:
                events.denied(decision, protocol)
            return decision
        call = Call(rule, identity, group, cost, key, attributes)
        meant = self.shelf.meant(call, protocol, self)
        if meant is not None:
            return self.check(meant, identity, cost=cost, attributes=attributes, protocol=protocol)
        return self._check([call], protocol)

    async def acheck(
        self,
        rule: RuleLike,
        identity: Identity | str,
        *,
        key: str = "user_or_ip",
        cost: Cost = 1,
        group: str | None = None,
        attributes: Mapping[str, Any] = _NONE,
        protocol: str = "",
    ) -> Decision:
        """`check` for an event loop, which it never blocks."""
        place: object = rule if type(rule) is str else id(rule)
        if group is not None:
            place = place, group
        try:
            prepared = self._known[place]
        except KeyError:
            prepared = self.shelf.prepared(rule, group, self)
        if prepared is not None and (cost is _ONE or (type(cost) is int and 0 < cost <= MAX_LIMIT)):
            if isinstance(identity, str):
                quota: Quota | JointQuota = prepared.untiered
                caller: Any = identity
            else:
                quota, caller = prepared.of(identity, key)
            now_us = time_ns() // 1000 if self._wall else self._clock()
            decision: Decision | None = None
            decide = quota.decide
            if decide is not None:
                decision = decide(quota, caller, cost, now_us)
            if decision is None:
                found = quota.denials.get(caller, cost, now_us)
                if found is None:
                    try:
                        found = await quota.atake(caller, cost, now_us)
                    except Exception as error:
                        call = Call(rule, identity, group, cost, key, attributes)
                        return self._degraded(self.plan([call], protocol), error, TAKE, protocol, now_us)
                    self._outage.answered()
                    quota.heed(caller, cost, now_us, found)
                decision = taken(quota, caller, cost, found)
            if not decision.allowed:
                events.denied(decision, protocol)
            return decision
        call = Call(rule, identity, group, cost, key, attributes)
        meant = self.shelf.meant(call, protocol, self)
        if meant is not None:
            return await self.acheck(meant, identity, cost=cost, attributes=attributes, protocol=protocol)
        return await self._acheck([call], protocol)

    def peek(
        self,
        rule: RuleLike,
        identity: Identity | str,
        *,
        key: str = "user_or_ip",
        cost: Cost = 1,
        group: str | None = None,
        attributes: Mapping[str, Any] = _NONE,
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
        attributes: Mapping[str, Any] = _NONE,
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
        return self._check(calls, protocol)

    async def acheck_many(self, calls: Sequence[Call], *, protocol: str = "") -> Decision:
        """`check_many` for an event loop."""
        return await self._acheck(calls, protocol)

    def reserve(
        self,
        rule: RuleLike,
        identity: Identity | str,
        *,
        key: str = "user_or_ip",
        cost: Cost = 1,
        group: str | None = None,
        attributes: Mapping[str, Any] = _NONE,
        protocol: str = "",
    ) -> Reservation:
        """Takes an estimated `cost`, to be settled when the real one is known. One round trip, and one to settle.

        Look at `.decision` first: nothing was taken when it is a denial. Arguments as in `check`.
        """
        reservation = self._reservation(Call(rule, identity, group, cost, key, attributes), protocol)
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
        attributes: Mapping[str, Any] = _NONE,
        protocol: str = "",
    ) -> Reservation:
        """`reserve` for an event loop."""
        reservation = self._reservation(Call(rule, identity, group, cost, key, attributes), protocol)
        reservation.decision = await self._aasked(reservation.asks, TAKE, protocol, reservation.taken_us)
        return reservation

    def clear(
        self,
        rule: RuleLike | None,
        identity: Identity | str,
        *,
        key: str = "user_or_ip",
        group: str | None = None,
        attributes: Mapping[str, Any] = _NONE,
    ) -> None:
        """Forgets what `rule` has counted for the caller, bans too; with None, what any rule has. One round trip for a rule.

        `attributes` are those that the rule counts by; whether it would match a call does not matter.
        Raises `StoreError` when the store fails: an undone `clear` must not pass for a done one.
        """
        if rule is None:
            caller = _caller(identity, key)
            self.store.clear_caller(self.settings.key_prefix, caller)
            self.shelf.forget_caller(caller)
        else:
            charges = self._clearing(Call(rule, identity, group, 1, key, attributes))
            if charges:
                self.store.clear(charges, self._clock())
                self.shelf.forget(charges)

    async def aclear(
        self,
        rule: RuleLike | None,
        identity: Identity | str,
        *,
        key: str = "user_or_ip",
        group: str | None = None,
        attributes: Mapping[str, Any] = _NONE,
    ) -> None:
        """`clear` for an event loop."""
        if rule is None:
            caller = _caller(identity, key)
            await self.store.aclear_caller(self.settings.key_prefix, caller)
            self.shelf.forget_caller(caller)
        else:
            charges = self._clearing(Call(rule, identity, group, 1, key, attributes))
            if charges:
                await self.store.aclear(charges, self._clock())
                self.shelf.forget(charges)

    def forget_denials(self, callers: Iterable[str]) -> None:
        """Has the next checks of these callers ask the store, whatever it denied them before."""
        self.shelf.forget_denials(callers)

    def prepared(self, rule: RuleLike, group: str | None) -> Prepared | PreparedJoint | None:
        """The rule as it can `decide` what takes no trip, until `shelf` is another one; None if all has to be asked for."""
        own: Any = type(self)
        if own.check is not Limiter.check or own.acheck is not Limiter.acheck:  # a subclass wants to be asked itself
            return None
        found = self.shelf.prepared(rule, group, self)
        return found if found is not None and found.untiered.decide is not None else None

    def settings_changed(self) -> None:
        """Forgets what follows from the settings."""
        with self._changing:  # two at once would leave one's shelf with the other's rules
            self.shelf = self._empty_shelf()
            self._known = self.shelf.known

    def _empty_shelf(self) -> Shelf:
        return Shelf(self._planner, None if self._wall else self._clock)

    def _check(self, calls: Sequence[Call], protocol: str) -> Decision:
        return self._asked(self.plan(calls, protocol), TAKE, protocol, self._clock())

    async def _acheck(self, calls: Sequence[Call], protocol: str) -> Decision:
        return await self._aasked(self.plan(calls, protocol), TAKE, protocol, self._clock())

    def _reservation(self, call: Call, protocol: str) -> Reservation:
        cost = check_cost(call.cost)
        # Planned for one unit, so that the real cost can be charged at the same weights.
        units = self.plan([call._replace(cost=1)], protocol)
        for ask in units:
            if ask.charge.member is not None:
                raise ConfigurationError(
                    f"rule {ask.charge.rule!r} counts different values, which have no cost to reserve; use check"
                )
        return Reservation(self, units, cost, self._clock())


def _caller(identity: Identity | str, key: str) -> str:
    return identity if isinstance(identity, str) else identity.key(key)
