"""Which budgets a call spends: the global cap, the limit of its method, and that of what it asks for by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ratelimit import ConfigurationError, Policy
from ratelimit.rates import MAX_LIMIT
from ratelimit_mcp.calls import RpcCall
from ratelimit_mcp.limit import Budget, Counted, LimitLike
from ratelimit_mcp.names import Known, NameMap
from ratelimit_mcp.refusal import INVALID_REQUEST, RefusalError

MAX_KINDS: Final = 100
"""Different calls in one batch that rules are asked about: each may have budgets of its own."""

UNREFUSABLE: Final = ("server/discover", "notifications/*")
"""Never answered with an error: a client takes a refused `server/discover` for an older server, and expects no answer to a
notification."""
NEVER_COUNTED: Final = (*UNREFUSABLE, "initialize")
"""How a client connects."""
DEFAULT_EXEMPT: Final = ("ping", "tools/list", "prompts/list", "resources/list", "resources/templates/list")
"""Sent by clients on their own, around the calls that were asked for."""

KINDS: Final[Mapping[str, str]] = {
    "tools/call": "tool",
    "prompts/get": "prompt",
    "resources/read": "resource",
    "resources/subscribe": "resource",
}
"""What a method's name is called where rules look at it."""

_METHODS = re.compile(r"[^*]+(/\*)?")


class Kind(NamedTuple):
    """What rules may know of a call: `named` is what the method asks for, a tool, a prompt or a resource."""

    method: str
    named: str = ""
    name: str | None = None

    def attributes(self) -> dict[str, str]:
        """The same as attributes; none for the name where nothing is asked for by name."""
        return {"method": self.method} if self.name is None else {"method": self.method, self.named: self.name}


class Cost(NamedTuple):
    """Units of one budget; `kind` is that of the calls which spend them, where rules look at it."""

    budget: Budget
    units: int
    kind: Kind | None = None

    def affordable(self, policies: Mapping[str, Policy]) -> int:
        """The units, at most as many as a rule's own cost may be multiplied by."""
        if self.units == 1 or not self.budget.by_rules:
            return self.units
        return min(self.units, MAX_LIMIT // max((rule.cost or 1 for rule in self.budget.rules(policies)), default=1))


class Limits:
    """The global cap, the limits in the maps, and the methods that do not count; checked when it is made."""

    def __init__(
        self,
        tools: Mapping[str, LimitLike] | None = None,
        global_limit: LimitLike | None = "MCP_GLOBAL",
        exempt: Iterable[str] = DEFAULT_EXEMPT,
        *,
        resources: Mapping[str, LimitLike] | None = None,
        prompts: Mapping[str, LimitLike] | None = None,
        methods: Mapping[str, LimitLike] | None = None,
    ) -> None:
        cap = self._global = None if global_limit is None else _cap(global_limit)
        self.maps = {
            "tool": NameMap(_read("tools", tools, "mcp", cap)),
            "prompt": NameMap(_read("prompts", prompts, "mcp-prompt", cap)),
            "resource": NameMap(_read("resources", resources, "mcp-resource", cap), uris=True),
        }
        self._methods = NameMap(_read("methods", methods, "mcp-method", cap))
        for method in self._methods.keys:
            _check_method("methods", method)
        self._known = {
            "tool": Known(self.maps["tool"].keys),
            "prompt": Known(self.maps["prompt"].keys),
            "resource": Known(None),
            "method": Known((*self._methods.keys, *KINDS)),
        }
        patterns = (*NEVER_COUNTED, *_patterns(exempt))
        self._exempt = frozenset(patterns)
        self._exempt_prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("/*"))

    def costs(self, calls: Iterable[RpcCall]) -> list[Cost]:
        """What `calls` cost together: every budget once (those by rules once for each kind of call), the global one last.
        Raises `RefusalError` for a batch of more kinds of call than rules can be asked about, and for an unknown cost."""
        found: dict[tuple[Budget, Kind | None], int] = {}
        for call in calls:
            for budget, units in self._units(call).items():
                place = budget, self._kind(call) if budget.by_rules else None
                found[place] = found.get(place, 0) + units
        if len(found) > MAX_KINDS and len({kind for _, kind in found} - {None}) > MAX_KINDS:
            raise RefusalError(
                400, INVALID_REQUEST, f"Invalid request: more than {MAX_KINDS} different calls in a batch"
            )
        costs = [Cost(budget, min(units, MAX_LIMIT), kind) for (budget, kind), units in found.items()]
        return sorted(costs, key=lambda cost: cost.budget == self._global) if len(costs) > 1 else costs

    def needs_arguments(self, call: RpcCall) -> bool:
        """Whether what `call` costs depends on what it hands on."""
        return any(callable(counted.cost) for counted in self._counted(call))

    def _units(self, call: RpcCall) -> dict[Budget, int]:
        """What one call takes. Two limits that name one budget take from it once: the more of the two."""
        found: dict[Budget, int] = {}
        for counted in self._counted(call):
            units = counted.units(call)
            if units:
                found[counted.budget] = max(units, found.get(counted.budget, 0))
        if self._global is not None and not self._is_exempt(call.method):
            found.setdefault(self._global, 1)
        return found

    def _counted(self, call: RpcCall) -> Iterator[Counted]:
        """The limits in the maps that mean `call`, whether or not its method counts against the cap."""
        named = KINDS.get(call.method)
        if named is not None and call.name is not None:
            counted = self.maps[named].find(call.name)
            if counted is not None:
                yield counted
        if self._methods:
            counted = self._methods.find(call.method)
            if counted is not None:
                yield counted

    def _kind(self, call: RpcCall) -> Kind:
        method, named = self._known["method"].shown(call.method), KINDS.get(call.method)
        if named is None or call.name is None:
            return Kind(method)
        return Kind(method, named, self._known[named].shown(call.name))

    def _is_exempt(self, method: str) -> bool:
        return method in self._exempt or method.startswith(self._exempt_prefixes)


def _read(where: str, limits: Mapping[str, LimitLike] | None, group: str, cap: Budget | None) -> dict[str, Counted]:
    if limits is not None and not isinstance(limits, Mapping):
        raise ConfigurationError(f"{where}={limits!r}: give each name its limit, as in {where}={{'name': '100/m'}}")
    found: dict[str, Counted] = {}
    for name, limit in (limits or {}).items():
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"{where}: {name!r} is not the name of a {where.removesuffix('s')}")
        place = f"{where}[{name!r}]"
        found[name] = Counted.of(place, limit, f"{group}:{name}")
        _refuse_common_rules(place, found[name].budget, cap)
    return found


def _cap(limit: LimitLike) -> Budget:
    budget, cost = Counted.of("global_limit", limit, "mcp")
    if cost != 1:
        raise ConfigurationError(
            f"global_limit: cost {cost!r}: every call takes one unit of it; give a tool's limit a cost"
        )
    return budget


def _refuse_common_rules(where: str, budget: Budget, cap: Budget | None) -> None:
    """Two limits that differ and have a rule in common would count each call twice in it."""
    if cap is None or cap == budget:
        return
    names = {rule.name for rule in cap.rules()}
    for rule in budget.rules():
        if rule.name in names:
            raise ConfigurationError(
                f"{where}: rule {rule.name!r} is in global_limit, too, and would count every call twice"
            )


def _check_method(where: str, method: object) -> None:
    if not isinstance(method, str) or not _METHODS.fullmatch(method):
        raise ConfigurationError(f"{where}: {method!r} is not a method such as 'ping' or 'prompts/*'")
    if where == "methods" and (method in UNREFUSABLE or method.startswith("notifications/")):
        raise ConfigurationError(f"{where}: {method!r} cannot be refused: clients take that for something else")


def _patterns(exempt: Iterable[object]) -> Iterator[str]:
    if isinstance(exempt, str):
        raise ConfigurationError(f"exempt: give a collection of methods, not the text {exempt!r}")
    for pattern in exempt:
        _check_method("exempt", pattern)
        assert isinstance(pattern, str)
        if pattern in ("tools/call", "tools/*"):
            raise ConfigurationError(f"exempt: {pattern!r} would switch off every limit")
        yield pattern
