"""The limiter: from a question to a decision, sync and async with everything in common but the call of the store.

Rules:
- What was prepared (`shelf.py`) is decided here, with nothing left to find out. All else is asked the general way
  (`asking.py`), which decides the same.
- `check` and `acheck` are the same but for one line. What they share is written out in both: calls would cost more than it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time_ns
from typing import Any, Final

from ratelimit import events
from ratelimit.asking import NO_ATTRIBUTES, Asking
from ratelimit.compiling import mypyc_attr
from ratelimit.decision import Decision, taken
from ratelimit.grounds import system_clock
from ratelimit.identity import Identity
from ratelimit.joint import PreparedJoint
from ratelimit.joint_quota import JointQuota
from ratelimit.multiplier import Multiplier
from ratelimit.outcome import TAKE
from ratelimit.plan import Call, Clock, Cost, RuleLike
from ratelimit.prepared import Prepared
from ratelimit.quota import Quota
from ratelimit.rates import MAX_LIMIT
from ratelimit.settings import Settings
from ratelimit.stores.base import Store
from ratelimit.tiers import Tiers, default_tiers

_ONE: Final = 1


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

    def check(
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
        return self._asked(self.plan([call], protocol), TAKE, protocol, self._clock())

    async def acheck(
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
        return await self._aasked(self.plan([call], protocol), TAKE, protocol, self._clock())

    def clear(
        self,
        rule: RuleLike | None,
        identity: Identity | str,
        *,
        key: str = "user_or_ip",
        group: str | None = None,
        attributes: Mapping[str, Any] = NO_ATTRIBUTES,
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
        attributes: Mapping[str, Any] = NO_ATTRIBUTES,
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

    def prepared(self, rule: RuleLike, group: str | None) -> Prepared | PreparedJoint | None:
        """The rule as it can `decide` what takes no trip, until `shelf` is another one; None if all has to be asked for."""
        own: Any = type(self)
        if own.check is not Limiter.check or own.acheck is not Limiter.acheck:  # a subclass wants to be asked itself
            return None
        found = self.shelf.prepared(rule, group, self)
        return found if found is not None and found.untiered.decide is not None else None


def _caller(identity: Identity | str, key: str) -> str:
    return identity if isinstance(identity, str) else identity.key(key)
