"""What one operation costs: its fields, counted through fragments, before anything of it is executed.

Rules:
- A field counts once for each place where it is written; one in a fragment, for each place where the fragment is spread.
- What `@skip` and `@include` leave out is not counted, as far as literals and variables tell.
- The time is linear in the document, however its fragments nest: each is counted once, and sums end at `MAX_COST`.
- Nothing in a document makes it loop or raise: fragments that are unknown, or contain themselves, add nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from graphql import (
    BooleanValueNode,
    DocumentNode,
    FieldNode,
    FloatValueNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLSchema,
    IntValueNode,
    ListValueNode,
    NullValueNode,
    OperationDefinitionNode,
    OperationType,
    StringValueNode,
    VariableNode,
    get_named_type,
)

from ratelimit.rates import MAX_LIMIT
from ratelimit_graphql.prices import Prices

MAX_COST: Final = MAX_LIMIT
"""Where counting ends: no limit lets this much through at once."""
_LONGEST: Final = 13
"""Digits of a number that is worth reading."""


class Document(NamedTuple):
    """The operation that a request means, and the fragments it may use."""

    operation: OperationDefinitionNode
    fragments: Mapping[str, FragmentDefinitionNode]


def chosen(document: DocumentNode, operation_name: str | None) -> Document | None:
    """The operation that an executor would execute, None if it would find none, or not know which."""
    found: list[OperationDefinitionNode] = []
    fragments = {}
    for definition in document.definitions:
        if isinstance(definition, FragmentDefinitionNode):
            fragments[definition.name.value] = definition
        elif isinstance(definition, OperationDefinitionNode):
            named = definition.name.value if definition.name else None
            if operation_name is None or named == operation_name:
                found.append(definition)
    if not found or (operation_name is None and len(found) > 1):
        return None
    return Document(found[-1], fragments)


class Counter:
    """Counts one operation. `multipliers` are the arguments that say how often what is under a field is executed,
    by a number or by a list's length."""

    def __init__(
        self,
        schema: GraphQLSchema,
        document: Document,
        variables: Mapping[str, Any],
        prices: Prices,
        multipliers: Collection[str] = (),
        introspection: bool = False,
    ) -> None:
        self._schema = schema
        self._document = document
        self._prices = prices
        self._multipliers = multipliers
        self._introspection = introspection
        self._variables = _Variables(variables, document.operation)

    def total(self) -> int:
        """The operation's cost, at most `MAX_COST`."""
        return self._resolved(self._of(self._document.operation.selection_set, self._root()))

    def _root(self) -> Any:
        kind = self._document.operation.operation
        if kind is OperationType.MUTATION:
            return self._schema.mutation_type
        return self._schema.subscription_type if kind is OperationType.SUBSCRIPTION else self._schema.query_type

    def _resolved(self, own: _Cost) -> int:
        """`own` with the fragments it spreads, these counted before those that spread them, each once."""
        totals: dict[str, int | None] = {}
        costs: dict[str, _Cost] = {}
        waiting = list(own.spreads)
        while waiting:
            name = waiting[-1]
            if name not in costs:
                totals[name] = None  # being counted: who spreads it now is a part of it
                costs[name] = self._of_fragment(name)
                waiting += [one for one in costs[name].spreads if one not in totals]
                continue
            waiting.pop()
            if totals[name] is None:
                totals[name] = _sum(costs[name], totals)
        return _sum(own, totals)

    def _of_fragment(self, name: str) -> _Cost:
        fragment = self._document.fragments.get(name)
        if fragment is None:
            return _Cost(0, {})
        return self._of(fragment.selection_set, self._type(fragment.type_condition))

    def _of(self, selection_set: Any, parent: Any) -> _Cost:
        """What is written in a selection set: its own fields' cost, and how often it spreads which fragment."""
        own = 0
        spreads: dict[str, int] = {}
        waiting = [(selection_set, parent, 1)]
        while waiting:
            within, parent, times = waiting.pop()
            for node in within.selections if within is not None else ():
                if self._is_left_out(node):
                    continue
                if isinstance(node, FragmentSpreadNode):
                    name = node.name.value
                    spreads[name] = min(spreads.get(name, 0) + times, MAX_COST)
                elif not isinstance(node, FieldNode):
                    of_type = self._type(node.type_condition) if node.type_condition else parent
                    waiting.append((node.selection_set, of_type, times))
                elif self._introspection or not node.name.value.startswith("__"):
                    own = min(own + times * self._prices.of(parent, node.name.value), MAX_COST)
                    if node.selection_set is not None:
                        definition = getattr(parent, "fields", {}).get(node.name.value)
                        found = None if definition is None else get_named_type(definition.type)
                        under = times * self._times(node, definition) if self._multipliers else times
                        waiting.append((node.selection_set, found, min(under, MAX_COST)))
        return _Cost(own, spreads)

    def _type(self, condition: Any) -> Any:
        return self._schema.type_map.get(condition.name.value)

    def _is_left_out(self, node: Any) -> bool:
        return self._directive(node, "skip") is True or self._directive(node, "include") is False

    def _directive(self, node: Any, name: str) -> object:
        """What the first directive called `name` has as its `if`, if that is known."""
        for directive in node.directives or ():
            if directive.name.value == name:
                given = next((one.value for one in directive.arguments or () if one.name.value == "if"), None)
                return self._variables.read(given)
        return None

    def _times(self, node: FieldNode, definition: Any) -> int:
        """How often what is under a field is executed, as far as its arguments say: at least once."""
        return max((1, *map(_number, self._sizes(node, definition))))

    def _sizes(self, node: FieldNode, definition: Any) -> Iterator[object]:
        given = {one.name.value: one.value for one in node.arguments or ()}
        for name in self._multipliers:
            value = self._variables.read(given.get(name))
            argument = getattr(definition, "args", {}).get(name)
            # Without a value, or with a variable that has none, the schema's own default holds.
            if value is None and argument is not None and not isinstance(given.get(name), NullValueNode):
                value = _default(argument)
            yield value


class _Cost(NamedTuple):
    """What fields cost, and how often which fragment is spread beside them."""

    own: int
    spreads: dict[str, int]


class _Variables:
    """What a value in an operation is, its variables read."""

    def __init__(self, variables: Mapping[str, Any], operation: OperationDefinitionNode) -> None:
        self._given = variables
        self._defaults = {
            one.variable.name.value: one.default_value
            for one in operation.variable_definitions or ()
            if one.default_value is not None
        }

    def read(self, node: Any) -> object:
        """A truth value, a number, a text or a list; None for what is something else, or is not known."""
        if isinstance(node, VariableNode):
            name = node.name.value
            if name in self._given:
                return self._given[name]
            node = self._defaults.get(name)
        if isinstance(node, ListValueNode):
            return node.values
        if isinstance(node, FloatValueNode):
            return float(node.value)
        return node.value if isinstance(node, (BooleanValueNode, IntValueNode, StringValueNode)) else None


def _sum(cost: _Cost, totals: Mapping[str, int | None]) -> int:
    return min(cost.own + sum(times * (totals[name] or 0) for name, times in cost.spreads.items()), MAX_COST)


def _number(value: object) -> int:
    """`value` as a number of times; a list's length, 1 for what is none."""
    if isinstance(value, (list, tuple)):
        return len(value)
    if isinstance(value, (int, float)):
        return int(min(value, MAX_COST)) if value > 1 else 1
    if isinstance(value, str):
        digits = value.strip().lstrip("+0")
        if digits.isascii() and digits.isdigit():
            return int(digits) if len(digits) <= _LONGEST else MAX_COST
    return 1


def _default(argument: Any) -> object:
    """An argument's default. graphql-core 3.3 keeps one from SDL as it was written."""
    if isinstance(argument.default_value, (int, float, str)):
        return argument.default_value
    written = getattr(argument, "default", None)
    value = getattr(getattr(written, "literal", None), "value", None)
    return getattr(written, "value", None) if value is None else value
