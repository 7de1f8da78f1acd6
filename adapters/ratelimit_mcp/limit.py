"""One limit of a map: what it counts by, for whom, and how many units a call takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ratelimit import Category, ConfigurationError, Policy, Rate, Rule
from ratelimit.guard import RULES, Guard
from ratelimit.plan import RuleLike, kept_rule
from ratelimit.rates import MAX_LIMIT, is_rate
from ratelimit.rules import read_rate
from ratelimit_mcp.calls import RpcCall
from ratelimit_mcp.refusal import INVALID_PARAMS, RefusalError

logger = logging.getLogger("ratelimit.mcp")

CostOf: TypeAlias = Callable[[str, Mapping[str, Any]], int]
"""Units of a call, from its name and its arguments. The arguments are as the client sent them, not validated."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit with more to say than its rate: `Limit("5/h", cost=3)`.

    `rule` is a category, a `Rule`, a `Policy`, or the name of one, whose budget is shared with all that names it; or a rate
    with a budget of its own. `rate=` is for a rate or a category with a budget of its own. `cost` is the units that a call
    takes, a whole number or a function of name and arguments; `key` is a strategy of `Identity.key`.

    Raises `ConfigurationError` for what cannot be used, and for a cost that can never be had.
    """

    rule: RuleLike | None = None
    cost: int | CostOf = 1
    key: str = "user_or_ip"
    rate: RuleLike | None = None

    def __post_init__(self) -> None:
        for what, given in (("key", self.key), ("rate", self.rate)):
            if callable(given):
                raise ConfigurationError(
                    f"{what}={given!r}: no function can stand here; a Rule's by= and rate= can be one"
                )
        rule = read_rate(self.rule) if is_rate(self.rule) else self.rule
        guard = Guard(rule, rate=self.rate, key=self.key, cost=self.cost)
        object.__setattr__(self, "rule", guard.rule)
        object.__setattr__(self, "rate", guard.rate)
        counted = guard.rate or guard.rule
        if isinstance(counted, Rate) and not callable(self.cost) and self.cost > 1:
            capacity = min(part.capacity for part in counted.parts)
            if 0 < capacity < self.cost:
                raise ConfigurationError(f"cost {self.cost} is more than {str(counted)!r} ever has")


LimitLike: TypeAlias = RuleLike | Limit
"""What may stand in a map: a category (its name, or `RateLimits.X`), a rate (as text, or `Rate`), a rule, a policy (or
its name), or a `Limit`."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What is counted together: a category wherever it is named (no `group`), or a rate in its own group.

    With `by_rules` it is a rule or a policy (or one's name), which looks at each kind of call.
    """

    rule: Category | Rate | Rule | Policy | str
    group: str | None
    key: str = "user_or_ip"

    @property
    def by_rules(self) -> bool:
        """Whether it depends on the call what is counted, and for whom."""
        return isinstance(self.rule, RULES)

    def rules(self, policies: Mapping[str, Policy] | None = None) -> Iterable[Rule]:
        """The rules that are known, by the names of a file's `policies` too."""
        rule = (policies or {}).get(self.rule) if isinstance(self.rule, str) else self.rule
        return Policy(rule) if isinstance(rule, (Rule, Policy)) else ()


class Counted(NamedTuple):
    """A limit as a call meets it: the budget, and what one call takes of it."""

    budget: Budget
    cost: int | CostOf

    @classmethod
    def of(cls, where: str, limit: LimitLike, group: str) -> Counted:
        """What `limit` means; a rate counts in `group`. Raises `ConfigurationError`, which tells `where`."""
        try:
            found = limit if isinstance(limit, Limit) else Limit(_readable(limit))
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error}") from None
        own = found.rate is not None or isinstance(found.rule, Rate)
        rule: Any = found.rule if found.rate is None else found.rate
        return cls(Budget(rule, group if own else None, found.key), found.cost)

    def units(self, call: RpcCall) -> int:
        """What `call` takes, at most `MAX_LIMIT`. A function that fails, or gives no such number, is told in the log, and
        the call is refused: its arguments are the client's, and a call that cannot be counted must not run."""
        if not callable(self.cost):
            return self.cost
        arguments = call.arguments()
        try:
            units: object = self.cost(call.name or "", arguments)
        except Exception as error:
            logger.warning("the cost of %s %.80r cannot be told: %s", call.method, call.name, type(error).__name__)
            logger.debug("what its function raised", exc_info=True)
            raise _unknown_cost(call) from error
        if type(units) is not int or units < 0:
            logger.warning("the cost of %s %.80r is no whole number >= 0: %.80r", call.method, call.name, units)
            raise _unknown_cost(call)
        return min(units, MAX_LIMIT)


def _readable(limit: object) -> Any:
    return limit if is_rate(limit) else kept_rule(limit)


def _unknown_cost(call: RpcCall) -> RefusalError:
    return RefusalError(400, INVALID_PARAMS, "Invalid params: what this call costs cannot be told", None, call.id)
