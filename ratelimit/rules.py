"""Rules and policies: which calls are meant, what makes two callers different, how much they may do, and what follows.

Everything that takes a category takes a `Rule` or a `Policy` too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from types import MappingProxyType
from typing import Any, Final

from ratelimit.categories import Category, RateLimits
from ratelimit.errors import ConfigurationError
from ratelimit.identity import STRATEGIES, Identity
from ratelimit.rates import MAX_LIMIT, MAX_WINDOW, Rate

ACTIONS: Final = ("enforce", "log", "skip")
ON_OUTAGE: Final = ("open", "closed", "local")
POLICY_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
"""What a policy of a file may be called: never what a category may."""
LEASED_BY: Final = frozenset({*STRATEGIES, "token"})
"""Characteristics that do not depend on the call."""
PLAIN_BY: Final = LEASED_BY - {"global"}
"""Those that are found in the caller."""

RateSource = str | Rate | Category | Callable[[Identity], "str | Rate | Category | None"]
Characteristic = str | Callable[[Identity], str]


@dataclass(frozen=True, slots=True)
class Rule:
    """One limit.

    - `name`: the group its counts are kept in, and its name in decisions, headers and logs.
    - `rate`: rate text (several rates by `;`), `Rate`, category or its name, or a function of the caller that gives one
      of these, or None for no limit. Left out for `action="skip"`.
    - `by`: what makes callers different, one characteristic or several together: `"user_or_ip"` or `"user"`, `"ip"`,
      `"token_or_ip"` or `"token"`, `"global"`, the name of an attribute (`"device"`, `"account"`), or a function of the
      caller. A missing attribute counts as an empty one.
    - `match`: which calls are meant, by attribute: a value to equal, a compiled regular expression to find, or a tuple,
      list or set of these of which one has to do. A call that lacks the attribute is not meant.
    - `cost`: units per call, times the cost that `check` is given.
    - `action`: `"enforce"`; `"log"` counts the same, bans included, and never refuses; `"skip"` lets matching calls through
      without asking the store.
    - `ban_for`: seconds of the ban that a refusal writes; several for the first, second, … in a row.
    - `count_distinct`: the name of an attribute; the rate then limits how many different values of it a caller may use.
    - `tiered`: whether the caller's tier and multiplier scale the rate.
    - `on_outage`: `"open"`, `"closed"` or `"local"` (an in-process limiter takes over); None leaves it to the settings.
    - `lease`: units that a worker takes from a shared store at a time, to spend them in that window without a trip for
      each; never too many in all, but what it does not spend nobody else can. Only for a rule with one rate in
      clock-aligned windows that counts every call, of a user, an address, a token or of everybody; 1 is none.

    Raises `ConfigurationError`, naming rule and field, for what cannot be used.
    """

    name: str
    rate: RateSource | None = None
    by: Characteristic | Sequence[Characteristic] = "user_or_ip"
    match: Mapping[str, Any] = field(default_factory=dict, hash=False)
    cost: int = 1
    action: str = "enforce"
    ban_for: int | Sequence[int] = ()
    count_distinct: str | None = None
    tiered: bool = False
    on_outage: str | None = None
    lease: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigurationError(f"rule name {self.name!r} is not a name")
        if not isinstance(self.match, Mapping):
            raise self._error("match", f"{self.match!r} is not a mapping of attributes to what they must be")
        object.__setattr__(self, "by", _several(self.by))
        object.__setattr__(self, "ban_for", _several(self.ban_for))
        object.__setattr__(self, "match", MappingProxyType(dict(self.match)))
        if not callable(self.rate) and self.rate is not None:
            object.__setattr__(self, "rate", self._read("rate", read_rate, self.rate))
        self._check_fields()
        self._check_callers()
        for name, wanted in self.match.items():
            self._check_matcher(name, wanted)
        self._check_together()

    @property
    def bans_us(self) -> tuple[int, ...]:
        """The lengths of its bans in microseconds."""
        return tuple(seconds * 1_000_000 for seconds in self.ban_for)  # type: ignore[union-attr]

    def matches(self, attributes: Mapping[str, Any]) -> bool:
        """Whether a call with these attributes is meant."""
        for name, wanted in self.match.items():  # noqa: SIM110 (a generator takes longer than the comparison)
            if name not in attributes or not _matches(wanted, attributes[name]):
                return False
        return True

    def caller(self, identity: Identity | str, attributes: Mapping[str, Any]) -> str:
        """The caller's part of the key: its characteristics, joined."""
        if isinstance(identity, str):
            identity = Identity(name=identity)
        by: Sequence[Characteristic] = self.by  # type: ignore[assignment]
        parts = [self._characteristic(one, identity, attributes) for one in by]
        if len(parts) == 1:
            return parts[0]
        return "&".join(part.replace("%", "%25").replace("&", "%26") for part in parts)

    def _characteristic(self, one: Characteristic, identity: Identity, attributes: Mapping[str, Any]) -> str:
        if callable(one):
            found: object = one(identity)
            if isinstance(found, bool) or not isinstance(found, (str, int)):  # None, say, would make one of everybody
                raise self._error("by", f"{one!r} gave {found!r}; it must give a text or a number")
            return f"key:{found}"
        if one == "global":
            return "global"
        if one == "token" or one in STRATEGIES:
            return identity.key("token_or_ip" if one == "token" else one)
        value = attributes.get(one)
        return f"{one}:{'' if value is None else value}"

    def _read(self, what: str, read: Callable[[Any], Any], value: object) -> Any:
        try:
            return read(value)
        except ConfigurationError as error:
            raise self._error(what, str(error)) from None

    def _error(self, what: str, text: str) -> ConfigurationError:
        return ConfigurationError(f"rule {self.name!r}, {what}: {text}")

    def _check_fields(self) -> None:
        if self.action not in ACTIONS:
            raise self._error("action", f"{self.action!r} is not one of {', '.join(ACTIONS)}")
        if self.on_outage is not None and self.on_outage not in ON_OUTAGE:
            raise self._error("on_outage", f"{self.on_outage!r} is not one of {', '.join(ON_OUTAGE)}")
        if type(self.tiered) is not bool:
            raise self._error("tiered", f"{self.tiered!r} is neither true nor false")
        if type(self.cost) is not int or not 0 <= self.cost <= MAX_LIMIT:
            raise self._error("cost", f"{self.cost!r} is not a whole number from 0 to {MAX_LIMIT}")
        for seconds in self.ban_for:  # type: ignore[union-attr]
            if type(seconds) is not int or not 1 <= seconds <= MAX_WINDOW:
                raise self._error(
                    "ban_for",
                    f"{seconds!r} is not a whole number of seconds from 1 to {MAX_WINDOW}; leave it out for no ban",
                )
        if self.count_distinct is not None and (not isinstance(self.count_distinct, str) or not self.count_distinct):
            raise self._error("count_distinct", f"{self.count_distinct!r} is not the name of an attribute")
        if type(self.lease) is not int or not 1 <= self.lease <= MAX_LIMIT:
            raise self._error("lease", f"{self.lease!r} is not a whole number of units from 1 to {MAX_LIMIT}")

    def _check_callers(self) -> None:
        if not self.by:
            raise self._error("by", "name at least one characteristic, or 'global' for one budget for everybody")
        for one in self.by:  # type: ignore[union-attr]
            if not callable(one) and (not isinstance(one, str) or not one):
                raise self._error("by", f"{one!r} is neither the name of a characteristic nor a function of the caller")
        for what, given in (("rate", self.rate), *(("by", one) for one in self.by)):  # type: ignore[union-attr]
            if iscoroutinefunction(given):
                raise self._error(what, f"{given!r} is a coroutine function; it must be a plain one")

    def _check_matcher(self, name: object, wanted: Any) -> None:
        if not isinstance(name, str) or not name:
            raise self._error("match", f"{name!r} is not the name of an attribute")
        if isinstance(wanted, _LISTS):
            if not wanted:
                raise self._error(f"match.{name}", "no value is in an empty list; leave it out to mean every call")
            for one in wanted:
                self._check_matcher(name, one)
        elif isinstance(wanted, re.Pattern) and not isinstance(wanted.pattern, str):
            raise self._error(f"match.{name}", f"{wanted.pattern!r} is a pattern of bytes; compile it from a text")
        elif not isinstance(wanted, (str, int, re.Pattern)):
            raise self._error(f"match.{name}", f"{wanted!r} is not a value, a compiled pattern or a list of these")

    def _check_together(self) -> None:
        if self.action == "skip":
            for what, unset in _UNCOUNTED:
                if getattr(self, what) != unset:
                    raise self._error(
                        what, "a skipped call is not counted, so it can have none; use action='log' to count"
                    )
        elif self.rate is None:
            raise self._error("rate", "missing; give one, or action='skip' to let matching calls through")
        if self.lease != 1:
            self._check_leased()
        if self.count_distinct is None:
            return
        if self.ban_for:
            raise self._error("ban_for", "not with count_distinct; add a second rule that counts calls and bans")
        if self.cost != 1:
            raise self._error("cost", "not with count_distinct, where each different value uses one unit")
        rate = self.rate.rate if isinstance(self.rate, Category) else self.rate
        if isinstance(rate, Rate):
            self.check_distinct(rate)

    def _check_leased(self) -> None:
        for what, unset in _LEASED:
            if getattr(self, what) != unset:
                raise self._error("lease", f"not with {what}; only a rule that counts every call alike can have one")
        if len(self.by) != 1 or self.by[0] not in LEASED_BY:  # type: ignore[arg-type, index, operator]
            raise self._error("lease", f"only where by is one of {', '.join(sorted(LEASED_BY))}")
        rate = self.rate.rate if isinstance(self.rate, Category) else self.rate
        if not isinstance(rate, Rate):
            raise self._error("lease", f"not with a function as the rate, {rate!r}")
        self.check_lease(rate)
        if rate is self.rate and not self.tiered and self.lease > rate.limit:
            raise self._error("lease", f"{self.lease} units at a time are more than {str(rate)!r} ever has")

    def check_lease(self, rate: Rate) -> None:
        """Raises `ConfigurationError` if units of `rate` cannot be taken in advance."""
        if self.lease != 1 and (rate.also or rate.algorithm != "fixed"):
            raise self._error("lease", f"{str(rate)!r}: only for one rate in clock-aligned windows, as in '600/m'")

    def check_distinct(self, rate: Rate) -> None:
        """Raises `ConfigurationError` if different values cannot be counted at `rate`."""
        if self.count_distinct is not None and any(part.algorithm != "fixed" for part in rate.parts):
            raise self._error("rate", f"{str(rate)!r}: count_distinct needs fixed windows, as in '20/h'")


@dataclass(frozen=True, slots=True, init=False)
class Policy:
    """An ordered set of rules, asked together: every one that matches is counted, the strictest is reported.

    `Policy(rule, rule, …)`; a policy among them stands for its rules. The first matching `skip` rule lets a call through.
    Raises `ConfigurationError` when two rules have one name, and for a lease among several.
    """

    rules: tuple[Rule, ...]

    def __init__(self, *rules: Rule | Policy) -> None:
        flat: list[Rule] = []
        for one in rules:
            if not isinstance(one, (Rule, Policy)):
                raise ConfigurationError(f"{one!r} is not a Rule")
            flat += one.rules if isinstance(one, Policy) else (one,)
        names = [rule.name for rule in flat]
        for name in names:
            if names.count(name) > 1:
                raise ConfigurationError(f"policy: two rules are called {name!r}; their counts would be mixed")
        if not flat:
            raise ConfigurationError("policy: give at least one rule")
        for rule in flat:
            if rule.lease != 1 and len(flat) > 1:
                raise rule._error("lease", "not in a policy of several rules, of which all are taken or none")
        object.__setattr__(self, "rules", tuple(flat))

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __getitem__(self, name: str) -> Rule:
        """The rule called `name`, as in `limiter.clear(policy["login-pair"], identity)`."""
        for rule in self.rules:
            if rule.name == name:
                return rule
        raise ConfigurationError(f"no rule {name!r} in this policy; it has {', '.join(rule.name for rule in self)}")


def read_rate(rate: object) -> Category | Rate:
    """A rate as rules and decorators take it: `Rate`, rate text, category or its name."""
    if isinstance(rate, (Rate, Category)):
        return rate
    if isinstance(rate, str) and "/" not in rate and not rate.lstrip()[:1].isdigit():
        return RateLimits[rate]
    return Rate.parse(rate)  # type: ignore[arg-type]


_LISTS: Final = (tuple, list, set, frozenset)
_UNCOUNTED: Final = (
    *(("rate", None), ("cost", 1), ("ban_for", ())),
    *(("count_distinct", None), ("tiered", False), ("on_outage", None), ("lease", 1)),
)
"""What a rule that counts nothing leaves as it is."""
_LEASED: Final[tuple[tuple[str, Any], ...]] = (
    ("action", "enforce"),
    ("match", {}),
    ("cost", 1),
    ("ban_for", ()),
    ("count_distinct", None),
)
"""What a rule with a lease leaves as it is."""


def _several(given: Any) -> tuple[Any, ...]:
    """One or several, in order, as a tuple. A set has no order: it stays what it is, to be refused."""
    return tuple(given) if isinstance(given, (tuple, list)) else (given,)


def _matches(wanted: Any, value: Any) -> bool:
    if type(wanted) is str:  # as most are
        return bool(wanted == value)
    if isinstance(wanted, _LISTS):
        return any(_matches(one, value) for one in wanted)
    if isinstance(wanted, re.Pattern):
        return value is not None and wanted.search(str(value)) is not None
    return bool(wanted == value)
