"""The limiter: from a question to a decision, sync and async with everything in common but the call of the store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import time_ns
from types import MappingProxyType
from typing import Any, Final

from ratelimit import events
from ratelimit import settings as settings_module
from ratelimit.compiling import mypyc_attr
from ratelimit.decision import UNLIMITED, Decision, Part, decided, taken
from ratelimit.errors import ConfigurationError
from ratelimit.identity import Identity
from ratelimit.joint import JointQuota, PreparedJoint
from ratelimit.meant import Matching, matching
from ratelimit.multiplier import Multiplier
from ratelimit.outage import OutageLog, policy_outcomes
from ratelimit.outcome import LOOK, TAKE, Charge, Outcome
from ratelimit.plan import Ask, Call, Cost, Planner, RuleLike, check_cost
from ratelimit.prepared import MAX_PREPARED, Leases, Prepared, Quota, prepare
from ratelimit.rates import MAX_LIMIT, Rate
from ratelimit.reservation import Reservation
from ratelimit.rules import Policy, Rule
from ratelimit.settings import Settings
from ratelimit.stores import open_store
from ratelimit.stores.base import Store
from ratelimit.stores.memory import MemoryStore
from ratelimit.tiers import Tiers, default_tiers

_ONE: Final = 1
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})

Clock = Callable[[], int]
"""Microseconds since the epoch, as a whole number."""


def system_clock() -> int:
    """The wall clock, on which the processes that share a store agree."""
    return time_ns() // 1000


@mypyc_attr(allow_interpreted_subclasses=True)
class Limiter:
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
        given: Any = clock
        if type(given()) is not int:
            raise ConfigurationError(f"clock {clock!r} must give whole microseconds since the epoch, as an int")
        self._settings = settings
        self._clock = clock
        self._wall = clock is system_clock  # the same, without a call
        self._planner = Planner(tiers, multiplier)
        self._outage = OutageLog()
        self._prepared: dict[object, Prepared | PreparedJoint | None] = {}
        self._matching: dict[object, Matching | None] = {}
        self._leases: Leases = {}
        self._local = MemoryStore()  # takes over for rules whose outage policy is "local"
        self._opened: dict[str, Store] = {}
        self._opening = threading.Lock()
        self._store = open_store(store) if isinstance(store, str) else store
        _ = self.settings, self.store
        self._check_policies()
        if settings is None:
            self._watch = settings_module.Watch(self.settings_changed)
            settings_module.warn_of_unknown(os.environ)

    @property
    def settings(self) -> Settings:
        """The settings that hold now."""
        return self._settings or settings_module.current()

    @property
    def store(self) -> Store:
        """The store that is used now."""
        if self._store is not None:
            return self._store
        url = self.settings.store
        return self._opened[url] if url in self._opened else self._open(url)

    @property
    def policies(self) -> Mapping[str, Policy]:
        """The policies of the file that the settings name, by name; `check` takes these names too."""
        return self.settings.policies

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
            prepared = self._prepared[place]
        except KeyError:
            prepared = self._prepare(place, rule, group)
        if prepared is not None and (cost is _ONE or (type(cost) is int and 0 < cost <= MAX_LIMIT)):
            if isinstance(identity, str):
                quota: Quota | JointQuota = prepared.plain
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
                        return self._degraded(self._asks([call], protocol), error, TAKE, protocol, now_us)
                    self._outage.answered()
                    quota.heed(caller, cost, now_us, found)
                decision = taken(quota, caller, cost, found)
            if not decision.allowed:
                events.denied(decision, protocol)
            return decision
        call = Call(rule, identity, group, cost, key, attributes)
        meant = self._meant(call, protocol)
        if meant is not None:
            return self.check(meant, identity, cost=cost, attributes=attributes, protocol=protocol)
        return self._check([call], TAKE, protocol)

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
            prepared = self._prepared[place]
        except KeyError:
            prepared = self._prepare(place, rule, group)
        if prepared is not None and (cost is _ONE or (type(cost) is int and 0 < cost <= MAX_LIMIT)):
            if isinstance(identity, str):
                quota: Quota | JointQuota = prepared.plain
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
                        return self._degraded(self._asks([call], protocol), error, TAKE, protocol, now_us)
                    self._outage.answered()
                    quota.heed(caller, cost, now_us, found)
                decision = taken(quota, caller, cost, found)
            if not decision.allowed:
                events.denied(decision, protocol)
            return decision
        call = Call(rule, identity, group, cost, key, attributes)
        meant = self._meant(call, protocol)
        if meant is not None:
            return await self.acheck(meant, identity, cost=cost, attributes=attributes, protocol=protocol)
        return await self._acheck([call], TAKE, protocol)

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
        return self._check([Call(rule, identity, group, cost, key, attributes)], LOOK, protocol)

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
        return await self._acheck([Call(rule, identity, group, cost, key, attributes)], LOOK, protocol)

    def check_many(self, calls: Sequence[Call], *, protocol: str = "") -> Decision:
        """One decision on several calls: all are taken or, if one does not pass, none. One round trip.

        The decision's figures are those of the call that constrains most. On Redis Cluster there is a round trip for each
        caller among the calls, and what one refuses is given back to the others.
        """
        return self._check(calls, TAKE, protocol)

    async def acheck_many(self, calls: Sequence[Call], *, protocol: str = "") -> Decision:
        """`check_many` for an event loop."""
        return await self._acheck(calls, TAKE, protocol)

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
            self.forget_denials([caller])
            self._drop_leases(caller)
        else:
            charges = self._clearing(Call(rule, identity, group, 1, key, attributes))
            if charges:
                self.store.clear(charges, self._clock())
                self.forget_denials(charge.caller for charge in charges)
                for charge in charges:
                    self._drop_leases(charge.caller, charge.head)

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
            self.forget_denials([caller])
            self._drop_leases(caller)
        else:
            charges = self._clearing(Call(rule, identity, group, 1, key, attributes))
            if charges:
                await self.store.aclear(charges, self._clock())
                self.forget_denials(charge.caller for charge in charges)
                for charge in charges:
                    self._drop_leases(charge.caller, charge.head)

    def unlimited(self, identity: Identity | str) -> Decision:
        """The decision on a call that nothing limits."""
        key = identity if isinstance(identity, str) else identity.key()
        return decided([Part("unlimited", UNLIMITED, Outcome(True, MAX_LIMIT, MAX_LIMIT, 0, 0), key)])

    def __repr__(self) -> str:
        return f"<Limiter on {type(self.store).__name__}>"

    def forget_denials(self, callers: Iterable[str]) -> None:
        """Has the next checks of these callers ask the store, whatever it denied them before."""
        for caller in set(callers):
            for prepared in list(self._prepared.values()):
                if prepared is not None:
                    prepared.forget_denials(caller)

    def _drop_leases(self, caller: str, head: str | None = None) -> None:
        """What is in hand for the caller was counted under keys that are gone; with a head, under that one."""
        for (place, *_), leased in list(self._leases.items()):
            if head is None or place == head:
                leased.hands.drop(caller)

    def now(self) -> int:
        """The limiter's time: microseconds since the epoch."""
        return self._clock()

    def close(self) -> None:
        """Closes the store's connections."""
        self.store.close()

    async def aclose(self) -> None:
        """Closes the store's connections, those of the running event loop too."""
        await self.store.aclose()

    def settings_changed(self) -> None:
        """Forgets what follows from the settings."""
        self._leases = {}
        self._matching = {}
        self._prepared = {}

    def _prepare(self, place: object, rule: RuleLike, group: str | None) -> Prepared | PreparedJoint | None:
        """What can be found out before a check, if `rule` is one that can be prepared; kept at `place` for the next one."""
        known, leases = self._prepared, self._leases  # before the settings are looked up: a change begins new ones
        if place not in known:
            if len(known) >= MAX_PREPARED:
                known = self._prepared = {}
            known[place] = prepare(rule, group, self.settings, self.store, self._planner, leases)
        return known[place]

    def _meant(self, call: Call, protocol: str) -> Rule | Policy | None:
        """The rules that mean the call, if that has to be found out, and if they are prepared."""
        rule, known = call.rule, self._matching  # before the settings, as above
        place = rule if type(rule) is str else id(rule)
        if place not in known:
            if len(known) >= MAX_PREPARED:
                known = self._matching = {}
            known[place] = matching(rule, self._planner.named(rule, self.settings))
        found = known[place]
        if found is None or call.group is not None or not isinstance(call.identity, (str, Identity)):
            return None
        meant = found.meant(call, protocol)
        return None if meant is None or self._prepare(id(meant), meant, None) is None else meant

    def _check(self, calls: Sequence[Call], mode: int, protocol: str) -> Decision:
        return self._asked(self._asks(calls, protocol), mode, protocol, self._clock())

    async def _acheck(self, calls: Sequence[Call], mode: int, protocol: str) -> Decision:
        return await self._aasked(self._asks(calls, protocol), mode, protocol, self._clock())

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

    def _asks(self, calls: Sequence[Call], protocol: str) -> list[Ask]:
        if not calls:
            raise ConfigurationError("nothing to check: give at least one call")
        settings = self.settings
        asks = [ask for call in calls for ask in self._planner.asks(call, settings, protocol)]
        self._check_holds(asks)
        return asks

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

    def _reservation(self, call: Call, protocol: str) -> Reservation:
        cost = check_cost(call.cost)
        # Planned for one unit, so that the real cost can be charged at the same weights.
        units = self._asks([call._replace(cost=1)], protocol)
        for ask in units:
            if ask.charge.member is not None:
                raise ConfigurationError(
                    f"rule {ask.charge.rule!r} counts different values, which have no cost to reserve; use check"
                )
        return Reservation(self, units, cost, self._clock())

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

    def _open(self, url: str) -> Store:
        with self._opening:
            if url not in self._opened:
                try:
                    self._opened[url] = open_store(url)
                except ConfigurationError as error:
                    raise ConfigurationError(f"{settings_module.PREFIX}STORE: {error}") from error
            return self._opened[url]


def _decision(asks: Sequence[Ask], outcomes: Sequence[Outcome], degraded: bool = False) -> Decision:
    parts = [
        Part(ask.charge.rule, ask.charge.rate, outcome, ask.caller, ask.charge.enforce)
        for ask, outcome in zip(asks, outcomes, strict=True)
    ]
    return decided(parts, degraded)


def _caller(identity: Identity | str, key: str) -> str:
    return identity if isinstance(identity, str) else identity.key(key)


_limiter: Limiter | None = None
_limiter_lock = threading.Lock()


def get_limiter() -> Limiter:
    """The process's limiter: the one `set_limiter` was given, else one that follows the settings."""
    global _limiter
    limiter = _limiter
    if limiter is None:
        with _limiter_lock:
            limiter = _limiter
            if limiter is None:
                limiter = _limiter = Limiter()
    return limiter


def set_limiter(limiter: Limiter | None) -> None:
    """Makes `limiter` the process's one; None makes the next `get_limiter` build it anew."""
    global _limiter
    _limiter = limiter


def is_rate_limited(group: str, key: str, rate: RuleLike, increment: bool = True) -> bool:
    """The shortest form: True when `key` has used up `rate` in `group`. One round trip.

    `rate` is a rate's text, a `Rate` or a category; `increment=False` only looks.
    """
    limiter = get_limiter()
    return not (limiter.check if increment else limiter.peek)(_read(rate), key, group=group)


async def ais_rate_limited(group: str, key: str, rate: RuleLike, increment: bool = True) -> bool:
    """`is_rate_limited` for an event loop."""
    limiter = get_limiter()
    return not await (limiter.acheck if increment else limiter.apeek)(_read(rate), key, group=group)


def _read(rate: RuleLike) -> RuleLike:
    return Rate.parse(rate) if isinstance(rate, str) and "/" in rate else rate
