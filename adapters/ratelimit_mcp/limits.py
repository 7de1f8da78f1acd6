"""Which budgets a call spends: the global cap, and the limit of its tool."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ratelimit import Category, ConfigurationError, Policy, Rate, Rule
from ratelimit.guard import RULES
from ratelimit.plan import kept_rule
from ratelimit_mcp.calls import RpcCall
from ratelimit_mcp.refusal import INVALID_REQUEST, RefusalError

Limit: TypeAlias = str | Category | Rate | Rule | Policy
"""A category (its name, or `RateLimits.X`), a rate (as text, or `Rate`), a rule, a policy (or its name)."""

MAX_KINDS: Final = 100
"""Different calls in one batch that rules are asked about: each may have budgets of its own."""

NEVER_COUNTED = ("server/discover", "initialize", "notifications/*")
"""How a client connects. Refusing `server/discover` would silently downgrade it to the older protocol."""
DEFAULT_EXEMPT = ("ping", "tools/list")
"""Sent by clients on their own, around the calls that were asked for."""

_METHODS = re.compile(r"[^*]+(/\*)?")


@dataclass(frozen=True, slots=True)
class Budget:
    """What is counted together: a category wherever it is named (no `group`), or a rate in its own group.

    With `by_rules` it is a rule or a policy (or one's name), which looks at each kind of call.
    """

    rule: Category | Rate | Rule | Policy | str
    group: str | None

    @classmethod
    def of(cls, limit: Limit, group: str) -> Budget:
        """The budget that `limit` means; a rate counts in `group`. Raises `ConfigurationError`."""
        rule = kept_rule(Rate.parse(limit) if isinstance(limit, str) and "/" in limit else limit)
        return cls(rule, group if isinstance(rule, Rate) else None)

    @property
    def by_rules(self) -> bool:
        """Whether it depends on method and tool what is counted, and for whom."""
        return isinstance(self.rule, RULES)

    def rules(self) -> Iterable[Rule]:
        """The rules that are known now."""
        return Policy(self.rule) if isinstance(self.rule, (Rule, Policy)) else ()


class Kind(NamedTuple):
    """What rules may know of a call."""

    method: str
    tool: str | None

    def attributes(self) -> dict[str, str]:
        """The same as attributes; none for the tool where no tool is called."""
        found = {"method": self.method, "tool": self.tool}
        return {name: value for name, value in found.items() if value is not None}


class Cost(NamedTuple):
    """Units of one budget; `kind` is that of the calls which spend them, where rules look at it."""

    budget: Budget
    units: int
    kind: Kind | None = None


class Limits:
    """The global cap, the tools' limits and the methods that count for neither; checked when it is made."""

    def __init__(
        self,
        tools: Mapping[str, Limit] | None,
        global_limit: Limit | None,
        exempt: Iterable[str] = DEFAULT_EXEMPT,
    ) -> None:
        self._tools = {name: _tool_budget(name, limit) for name, limit in (tools or {}).items()}
        self._global = None if global_limit is None else _named("global_limit", global_limit, "mcp")
        for name, budget in self._tools.items():
            _refuse_common_rules(name, budget, self._global)
        patterns = (*NEVER_COUNTED, *_patterns(exempt))
        self._exempt = frozenset(patterns)
        self._exempt_prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("/*"))

    def costs(self, calls: Iterable[RpcCall]) -> list[Cost]:
        """What `calls` cost together: every budget once (those by rules once for each kind of call), the tools' before the
        global one. Raises `RefusalError` for a batch of more kinds of call than rules can be asked about."""
        kinds: dict[Kind, int] = {}
        for call in calls:
            if not self._is_exempt(call.method):
                kind = Kind(call.method, call.tool)
                kinds[kind] = kinds.get(kind, 0) + 1
        found = [*self._tool_costs(kinds), *self._global_costs(kinds)]
        if len(kinds) > MAX_KINDS and len({cost.kind for cost in found} - {None}) > MAX_KINDS:
            raise RefusalError(
                400, INVALID_REQUEST, f"Invalid request: more than {MAX_KINDS} different calls in a batch"
            )
        return found

    def _tool_costs(self, kinds: Mapping[Kind, int]) -> Iterator[Cost]:
        units: dict[Budget, int] = {}
        for kind, number in kinds.items():
            budget = None if kind.tool is None else self._tools.get(kind.tool)
            # A tool that names the global cap's own category, or its rules, is in the total already.
            if budget is None or budget == self._global:
                continue
            if budget.by_rules:
                yield Cost(budget, number, kind)
            else:
                units[budget] = units.get(budget, 0) + number
        yield from map(Cost, units.keys(), units.values())

    def _global_costs(self, kinds: Mapping[Kind, int]) -> Iterator[Cost]:
        if self._global is None or not kinds:
            return
        if self._global.by_rules:
            for kind, number in kinds.items():
                yield Cost(self._global, number, kind)
        else:
            yield Cost(self._global, sum(kinds.values()))

    def _is_exempt(self, method: str) -> bool:
        return method in self._exempt or method.startswith(self._exempt_prefixes)


def _tool_budget(name: object, limit: Limit) -> Budget:
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"tools: {name!r} is not the name of a tool")
    return _named(f"tools[{name!r}]", limit, f"mcp:{name}")


def _refuse_common_rules(tool: str, budget: Budget, cap: Budget | None) -> None:
    """Two limits that differ and have a rule in common would count each call of the tool twice in it."""
    if cap is None or cap == budget:
        return
    names = {rule.name for rule in cap.rules()}
    for rule in budget.rules():
        if rule.name in names:
            raise ConfigurationError(
                f"tools[{tool!r}]: rule {rule.name!r} is in global_limit, too, and would count every call twice"
            )


def _named(where: str, limit: Limit, group: str) -> Budget:
    try:
        return Budget.of(limit, group)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _patterns(exempt: Iterable[object]) -> Iterator[str]:
    if isinstance(exempt, str):
        raise ConfigurationError(f"exempt: give a collection of methods, not the text {exempt!r}")
    for pattern in exempt:
        if not isinstance(pattern, str) or not _METHODS.fullmatch(pattern):
            raise ConfigurationError(f"exempt: {pattern!r} is not a method such as 'ping' or 'prompts/*'")
        if pattern in ("tools/call", "tools/*"):
            raise ConfigurationError(f"exempt: {pattern!r} would switch off every limit")
        yield pattern
