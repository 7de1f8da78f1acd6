"""What a decorator holds: which rule, in which group, counted for whom. Checked when it is made, asked at every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction
from typing import Any, Final

from ratelimit import events
from ratelimit.categories import Category
from ratelimit.decision import Decision
from ratelimit.engine import Limiter
from ratelimit.errors import ConfigurationError
from ratelimit.identity import STRATEGIES, Identity, unknown_strategy
from ratelimit.joint import PreparedJoint
from ratelimit.plan import Call, RuleLike, check_cost, kept_rule
from ratelimit.prepared import Prepared
from ratelimit.process import get_limiter
from ratelimit.rates import Rate
from ratelimit.rules import Policy, Rule, read_rate
from ratelimit.shelf import Shelf

Attributes = Mapping[str, Any] | Callable[..., Mapping[str, Any]]
"""Facts of a call for rules to match and count by, or a callable that gives them."""

Kept = Category | Rate | Rule | Policy | str

RULES: Final = (Rule, Policy, str)
"""What a guard's rule is when rules say who is counted: a text that is left is a policy's name."""


class Guard:
    """A limit at one place of an application.

    Give `rule` (a category, a rule, a policy, or the name of a category or of a policy in the policy file) to spend the
    budget that every place naming it shares, or `rate` (rate text, `Rate`, category, or a callable giving one of these
    or None) for a budget of its own in `group`; a rule or policy given as `rate` is what it is as `rule`. `key` is a
    strategy of `Identity.key`, or a callable giving a text (counted as `key:<text>`) or an `Identity`; rules and policies
    have their own `by` instead. `cost` is a whole number >= 0 or a callable giving one. `attributes`, a mapping or a
    callable giving one, is what rules may match and count by, beside the `facts` that the place itself knows: these
    overrule, and are looked up only for a rule or a policy. Callables take what `check` is given after the group.

    Raises `ConfigurationError` for anything of this that cannot be used, when the guard is made; the name of a policy is
    looked up at each check.

    `constant` are rule, key, cost and group of a limit that asks nobody at a call, None for others; the group is `""` where
    the place says it.
    """

    __slots__ = (
        "_limiter",
        "_prepared",
        "attributes",
        "constant",
        "cost",
        "facts",
        "group",
        "key",
        "protocol",
        "rate",
        "rule",
    )

    def __init__(
        self,
        rule: RuleLike | None = None,
        *,
        rate: RuleLike | Callable[..., RuleLike | None] | None = None,
        key: str | Callable[..., str | Identity] = "user_or_ip",
        group: str | None = None,
        cost: int | Callable[..., int] = 1,
        attributes: Attributes | None = None,
        facts: Callable[..., Mapping[str, Any]] | None = None,
        protocol: str = "",
        limiter: Limiter | None = None,
    ) -> None:
        if (rule is None) == (rate is None):
            raise ConfigurationError(
                "give either a rule (a category, whose budget is shared) or rate= (a budget of its own)"
            )
        if not callable(key) and key not in STRATEGIES:
            raise unknown_strategy(key)
        for what, given in (("rate", rate), ("key", key), ("cost", cost), ("attributes", attributes)):
            if iscoroutinefunction(given):
                raise ConfigurationError(f"{what}={given!r} is a coroutine function; it must be a plain one")
        if group is not None and (not isinstance(group, str) or not group):
            raise ConfigurationError(f"group {group!r} is not a name")
        if not callable(cost):
            check_cost(cost)
        if not (attributes is None or callable(attributes) or isinstance(attributes, Mapping)):
            raise ConfigurationError(f"attributes {attributes!r} is neither a mapping nor a callable that gives one")
        if isinstance(rate, (Rule, Policy)):
            rule, rate = rate, None
        self.key: Any = key
        self.rule = None if rule is None else self._counted_by_itself(kept_rule(rule))
        if group is not None and isinstance(rule, Policy) and len(rule.rules) > 1:
            raise ConfigurationError(f"group {group!r} with a policy: its rules' counts would be mixed; leave it out")
        self.rate = rate if rate is None or callable(rate) else read_rate(rate)
        self.group = group
        self.cost: Any = cost
        self.attributes = attributes
        self.facts = facts
        self.protocol = protocol
        self._limiter = limiter
        self.constant = self._constant()
        self._prepared: tuple[Shelf | None, Prepared | PreparedJoint | None] = None, None

    def placed(self, group: str | None, protocol: str) -> Guard:
        """The same limit at another place: counted in `group`, told of as `protocol`."""
        return Guard(
            self.rule,
            rate=self.rate,
            key=self.key,
            group=group,
            cost=self.cost,
            attributes=self.attributes,
            facts=self.facts,
            protocol=protocol,
            limiter=self._limiter,
        )

    @property
    def limiter(self) -> Limiter:
        """The limiter this guard was given, else the process's one."""
        return self._limiter or get_limiter()

    @property
    def counts_apart(self) -> bool:
        """Whether it is a rate, with a budget of its own: in `group`, else where its place says."""
        return self.rate is not None or isinstance(self.rule, Rate)

    def known_key(self, identity: Identity) -> str | None:
        """The key that a constant limit counts by, which is known without working figures out; None of others."""
        return None if self.constant is None else identity.key(self.key)

    def at_hand(self, identity: Identity) -> Decision | None:
        """The decision on one call of a constant limit that is counted in memory, where nothing has to be waited for. None:
        `check` has to be asked, as always where the place says the group, or the cost is 0."""
        limiter = self._limiter or get_limiter()
        shelf, prepared = self._prepared
        if shelf is not limiter.shelf:
            shelf, prepared = self._prepared = self._prepared_by(limiter)
        if prepared is None:
            return None
        decision = prepared.decide(identity, self.key, self.cost)
        if decision is not None and not decision.allowed:
            events.denied(decision, self.protocol)
        return decision

    def check(self, identity: Identity, default_group: str, /, *args: Any, **kwargs: Any) -> Decision:
        """The limiter's decision on one call; one round trip."""
        limiter = self._limiter or get_limiter()
        if self.constant is not None:
            rule, key, cost, group = self.constant
            group = default_group if group == "" else group
            return limiter.check(rule, identity, key=key, cost=cost, group=group, protocol=self.protocol)
        call = self.call(identity, default_group, *args, **kwargs)
        if call is None:
            return limiter.unlimited(identity)
        if call.rule is not self.rule:  # found for this call: there is nothing that could be known of it
            return limiter.check_many([call], protocol=self.protocol)
        return limiter.check(
            call.rule, call.identity, key=call.key, cost=call.cost, group=call.group, protocol=self.protocol
        )

    async def acheck(self, identity: Identity, default_group: str, /, *args: Any, **kwargs: Any) -> Decision:
        """`check` for an event loop."""
        limiter = self._limiter or get_limiter()
        if self.constant is not None:
            rule, key, cost, group = self.constant
            group = default_group if group == "" else group
            return await limiter.acheck(rule, identity, key=key, cost=cost, group=group, protocol=self.protocol)
        call = self.call(identity, default_group, *args, **kwargs)
        if call is None:
            return limiter.unlimited(identity)
        if call.rule is not self.rule:
            return await limiter.acheck_many([call], protocol=self.protocol)
        return await limiter.acheck(
            call.rule, call.identity, key=call.key, cost=call.cost, group=call.group, protocol=self.protocol
        )

    def call(self, identity: Identity, default_group: str, /, *args: Any, **kwargs: Any) -> Call | None:
        """What to ask the limiter for, None when a callable rate said that there is no limit."""
        group = self.group
        rule = self.rule
        if rule is None:
            found = self.rate(*args, **kwargs) if callable(self.rate) else self.rate
            if found is None:
                return None
            if isinstance(found, (Rule, Policy)):
                rule = self._counted_by_itself(found)
            else:
                rule, group = read_rate(found), group or default_group
        elif isinstance(rule, Rate):
            group = group or default_group
        cost: Any = self.cost(*args, **kwargs) if callable(self.cost) else self.cost
        if self.attributes is not None:
            given = self.attributes(*args, **kwargs) if callable(self.attributes) else self.attributes
            identity = _having(identity, given)
        if self.facts is not None and isinstance(rule, RULES):
            identity = _having(identity, self.facts(*args, **kwargs))
        strategy = self.key
        if not callable(strategy):
            return Call(rule, identity, group, cost, strategy)
        return Call(rule, caller_named(strategy(*args, **kwargs), identity), group, cost)

    def _prepared_by(self, limiter: Limiter) -> tuple[Shelf, Prepared | PreparedJoint | None]:
        shelf = limiter.shelf  # before anything is looked up: a change of settings begins another one
        if self.constant is None:
            return shelf, None
        rule, _, cost, group = self.constant
        return shelf, limiter.prepared(rule, group) if group != "" and cost else None

    def _constant(self) -> tuple[Category | Rate, str, int, str | None] | None:
        rule = self.rule if self.rate is None else self.rate
        key, cost = self.key, self.cost
        if not isinstance(rule, (Category, Rate)) or callable(key) or callable(cost) or self.attributes is not None:
            return None
        return rule, key, cost, self.group or ("" if self.counts_apart else None)

    def _counted_by_itself(self, rule: Kept) -> Kept:
        """`rule`. Raises `ConfigurationError` if it is one that says itself who is counted, and a key says so too."""
        if isinstance(rule, RULES) and self.key != "user_or_ip":
            name = rule if isinstance(rule, str) else ", ".join(one.name for one in Policy(rule))
            raise ConfigurationError(f"key={self.key!r} has no effect on {name!r}, whose rules say by=; leave it out")
        return rule


def caller_named(found: object, identity: Identity) -> Identity:
    """Who a callable key says is calling. None, say, would put everybody into one budget: that is an error."""
    if isinstance(found, Identity):
        return found
    if isinstance(found, (str, int)) and not isinstance(found, bool):
        return identity.named(f"key:{found}")
    raise ConfigurationError(f"a key callable gave {found!r}; it must give a text, a number or an Identity")


def _having(identity: Identity, attributes: object) -> Identity:
    if not isinstance(attributes, Mapping) or not all(isinstance(name, str) for name in attributes):
        raise ConfigurationError(
            f"an attributes callable gave {attributes!r}; it must give a mapping of names to values"
        )
    return identity.having(**attributes)
