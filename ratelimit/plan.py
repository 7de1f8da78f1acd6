"""From what was asked to the charges a store takes: matching, tier, group and keys, without any I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from ratelimit.categories import Category, RateLimits
from ratelimit.compiling import Unchecked
from ratelimit.errors import ConfigurationError, UnknownCategory
from ratelimit.identity import Identity, hashed
from ratelimit.keys import further_head, head
from ratelimit.multiplier import Multiplier, multiplied
from ratelimit.outcome import Charge
from ratelimit.rates import MAX_LIMIT, Rate
from ratelimit.rules import POLICY_NAME, Policy, Rule, read_rate
from ratelimit.settings import Settings
from ratelimit.tiers import Tiers, default_tiers

RuleLike = str | Category | Rate | Rule | Policy
"""What may be checked: a category or its name, a rate, a rule, a policy or its name in the policy file."""
Cost = int | Unchecked
"""What a call may cost: a whole number of units, which `check_cost` looks at."""
Clock = Callable[[], int]
"""Microseconds since the epoch, as a whole number."""


class Call(NamedTuple):
    """One thing to check: `cost` units of `rule` for `identity`, counted in `group` (the rule's own by default)."""

    rule: RuleLike
    identity: Identity | str
    group: str | None = None
    cost: Cost = 1
    key: str = "user_or_ip"
    attributes: Mapping[str, Any] = {}


class Ask(NamedTuple):
    """A charge, the caller it is for, and what holds for it when the store cannot answer."""

    charge: Charge
    caller: str
    on_outage: str | None = None


class Planner:
    """Makes the charges of calls, by the settings, tiers and multiplier of one limiter."""

    def __init__(self, tiers: Tiers, multiplier: Multiplier | None) -> None:
        for what, given in (("tiers", tiers), ("multiplier", multiplier)):
            if (given is not None and not callable(given)) or iscoroutinefunction(given):
                raise ConfigurationError(f"{what}={given!r} is not a plain function of the caller")
        self._tiers = tiers
        self._multiplier = multiplier
        self.scales = tiers is default_tiers
        """Whether `scaled` only ever scales: tiers of an application's own may give any rate."""
        self.by_tier = self.scales and multiplier is None
        """Whether callers of one default tier have the same rates."""

    def asks(self, call: Call, settings: Settings, protocol: str) -> list[Ask]:
        """What to ask the store for one call; nothing when no rule means it, or one lets it through.

        Raises `ConfigurationError` for a rule, category, key strategy or cost that cannot be used.
        """
        check_cost(call.cost)
        if not isinstance(call.identity, (str, Identity)):
            raise not_a_caller(call.identity)
        rule = self.named(call.rule, settings)
        if not isinstance(rule, (Rule, Policy)):
            return self._of_rate(rule, call, settings)
        rules, attributes = _rules(rule, call), attributes_of(call, protocol)
        meant = [one for one in rules if one.matches(attributes)]
        if any(one.action == "skip" for one in meant):
            return []
        return [ask for one in meant for ask in self._of_rule(one, call, settings, attributes)]

    def clearing(self, call: Call, settings: Settings) -> list[Ask]:
        """Asks that name everything the rule may have counted for the caller, whatever it matches."""
        rule = self.named(call.rule, settings)
        if not isinstance(rule, (Rule, Policy)):
            return self._of_rate(rule, call, settings)
        rules, attributes = _rules(rule, call), attributes_of(call, "")
        return [ask for one in rules for ask in self._of_rule(one, call, settings, attributes)]

    def named(self, rule: RuleLike, settings: Settings) -> Category | Rate | Rule | Policy:
        """What `rule` is or names."""
        if isinstance(rule, str):
            return named_rule(rule, settings.policies)
        return rule if isinstance(rule, (Rate, Rule, Policy)) else named_category(rule)

    def _of_rate(self, rule: Category | Rate, call: Call, settings: Settings) -> list[Ask]:
        identity = call.identity
        caller = identity if isinstance(identity, str) else identity.key(call.key)
        if isinstance(rule, Rate):
            rate, group = rule, call.group or "default"
        else:
            rate, group = self.scaled(settings.rate(rule), identity), call.group or rule.name
        return [
            Ask(charge, caller) for charge in _charges(settings.key_prefix, group, caller, rate, check_cost(call.cost))
        ]

    def _of_rule(self, rule: Rule, call: Call, settings: Settings, attributes: Mapping[str, Any]) -> list[Ask]:
        rate = self._rate(rule, call.identity, settings)
        if rate is None:
            return []
        rule.check_lease(rate)
        cost = check_cost(call.cost)
        if rule.cost * cost > MAX_LIMIT:
            raise ConfigurationError(f"rule {rule.name!r}: cost {rule.cost} times {cost} is more than {MAX_LIMIT}")
        group, caller = call.group or rule.name, rule.caller(call.identity, attributes)
        found = _charges(settings.key_prefix, group, caller, rate, rule.cost * cost)
        if rule.action == "log":
            found = [charge._replace(enforce=False) for charge in found]
        if rule.bans_us:
            first = found[0].head
            found = [charge._replace(bans_us=rule.bans_us, ban_head=first) for charge in found]
        if rule.count_distinct is not None:
            rule.check_distinct(rate)
            value = attributes.get(rule.count_distinct)
            member = hashed("" if value is None else str(value))
            found = [charge._replace(member=member) for charge in found]
        return [Ask(charge, caller, rule.on_outage) for charge in found]

    def _rate(self, rule: Rule, identity: Identity | str, settings: Settings) -> Rate | None:
        source: Any = rule.rate
        if callable(source):
            source = source(Identity(name=identity) if isinstance(identity, str) else identity)
            if source is None:
                return None
            source = read_rate(source)
        rate = settings.rate(source) if isinstance(source, Category) else source
        return self.scaled(rate, identity) if rule.tiered else rate

    def scaled(self, rate: Rate, identity: Identity | str) -> Rate:
        """What `rate` is for the caller. A text that names a caller says nothing about its tier."""
        if isinstance(identity, str):
            return rate
        rate = self._tiers(identity, rate)
        return rate if self._multiplier is None else multiplied(rate, self._multiplier, identity)


def _charges(prefix: str, group: str, caller: str, rate: Rate, cost: int) -> list[Charge]:
    first = head(prefix, group)
    if not rate.also:
        return [Charge(first, caller, rate, cost, group)]
    whole, *others = rate.parts
    return [
        Charge(first, caller, whole, cost, group),
        *(Charge(further_head(first, other), caller, other, cost, group) for other in others),
    ]


def _rules(rule: Rule | Policy, call: Call) -> Sequence[Rule]:
    rules = rule.rules if isinstance(rule, Policy) else (rule,)
    if call.group is not None and len(rules) > 1:
        raise ConfigurationError(f"group {call.group!r} with a policy: its rules' counts would be mixed; leave it out")
    return rules


def attributes_of(call: Call, protocol: str) -> dict[str, Any]:
    """Everything that rules may look at: the engine's own facts last, for no caller may choose them."""
    identity = call.identity
    if isinstance(identity, str):
        identity = Identity(name=identity)
    return {
        **identity.attributes,
        **call.attributes,
        "user": identity.user,
        "ip": identity.ip,
        "authenticated": identity.user is not None,
        "superuser": identity.superuser,
        "protocol": protocol,
    }


def check_cost(cost: object) -> int:
    """The cost that was given. Raises `ConfigurationError` for a cost that is not whole, negative or out of range."""
    if type(cost) is not int or not 0 <= cost <= MAX_LIMIT:
        raise ConfigurationError(f"cost {cost!r} is not a whole number from 0 to {MAX_LIMIT}")
    return cost


def not_a_caller(identity: object) -> ConfigurationError:
    """The error for what names no caller."""
    return ConfigurationError(f"{identity!r} is neither an Identity nor a text; for a user write Identity(user=...)")


def named_rule(name: str, policies: Mapping[str, Policy]) -> Category | Policy:
    """The category, else the policy of the file, that `name` names. An unknown name is an error that lists both."""
    if name in RateLimits:
        return RateLimits[name]
    if name in policies:
        return policies[name]
    if "/" in name:
        return named_category(name)
    what = "policy" if POLICY_NAME.fullmatch(name) else "category"
    categories = ", ".join(sorted(category.name for category in RateLimits))
    raise UnknownCategory(
        f"unknown {what} {name!r}; valid ones: {categories}; "
        f"policies in RATELIMIT_POLICY_FILE: {', '.join(policies) or 'none'}"
    )


def kept_rule(rule: object) -> Category | Rate | Rule | Policy | str:
    """`rule` as a decorator keeps it until it is asked: all of it is checked now, but for the name of a policy, whose file
    is read with the settings."""
    if isinstance(rule, (Rate, Rule, Policy)) or (isinstance(rule, str) and POLICY_NAME.fullmatch(rule)):
        return rule
    return named_category(rule)


def named_category(rule: object) -> Category:
    """The category that `rule` is or names. A rate's text in its place is an error that says what to write instead."""
    if isinstance(rule, Category):
        return rule
    if isinstance(rule, str):
        if "/" in rule:
            raise ConfigurationError(
                f"{rule!r} is not a category; for a rate write rate={rule!r} or Rate.parse({rule!r})"
            )
        return RateLimits[rule]
    raise ConfigurationError(f"{rule!r} is not a category, Rate, Rule or Policy")
