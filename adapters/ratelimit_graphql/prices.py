"""What the fields of a schema cost in an operation: the application's prices, looked up by the type a field stands on.

Rules:
- A price of an object's field holds however the field is reached: selected on an interface, it costs the highest price
  of the objects it may mean. A price of an interface's field holds for its objects, unless they have their own.
- A price for a field that the schema does not have is an error: the field that was meant would be cheap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final
from weakref import WeakKeyDictionary

from graphql import GraphQLSchema, is_abstract_type, is_interface_type, is_object_type

from ratelimit import ConfigurationError
from ratelimit.plan import check_cost

_NAME: Final = re.compile(r"[_A-Za-z][_0-9A-Za-z]*\.[_A-Za-z][_0-9A-Za-z]*")


class FieldCosts:
    """The price of each `"Type.field"` in `costs`, and `default` for all others. Whole numbers from 0.

    Raises `ConfigurationError` for what is no such name or no such number.
    """

    def __init__(self, costs: Mapping[str, int] | None, default: int) -> None:
        if not isinstance(costs or {}, Mapping):
            raise ConfigurationError(f"field_costs {costs!r} is not a mapping of 'Type.field' to a cost")
        for name, cost in (costs or {}).items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ConfigurationError(f"field_costs: {name!r} is no field; write 'Query.documents'")
            check_named_cost(f"field_costs[{name!r}]", cost)
        check_named_cost("default_cost", default)
        self._costs = dict(costs or {})
        self._default = default
        self._prices: WeakKeyDictionary[GraphQLSchema, Prices] = WeakKeyDictionary()

    def of(self, schema: GraphQLSchema) -> Prices:
        """The prices in `schema`. `ConfigurationError` for one whose field it does not have."""
        prices = self._prices.get(schema)
        if prices is None:
            for name in self._costs:
                _check_field(schema, name)
            prices = self._prices[schema] = Prices(schema, self._costs, self._default)
        return prices


class Prices:
    """The prices in one schema, each looked up once."""

    __slots__ = ("_costs", "_default", "_known", "_schema")

    def __init__(self, schema: GraphQLSchema, costs: Mapping[str, int], default: int) -> None:
        self._schema = schema
        self._costs = costs
        self._default = default
        self._known: dict[tuple[str, str], int] = {}

    def of(self, parent: Any, field: str) -> int:
        """The price of `field` on the type `parent`; the default's on a type that is not known (None)."""
        if not self._costs or parent is None:
            return self._default
        known = self._known.get((parent.name, field))
        if known is None:
            known = max(self._own(one, field) for one in self._meant(parent))
            if field in getattr(parent, "fields", ()):  # not what a client made up
                self._known[parent.name, field] = known
        return known

    def _meant(self, parent: Any) -> list[Any]:
        """The objects that `parent` may stand for."""
        possible = self._schema.get_possible_types(parent) if is_abstract_type(parent) else ()
        return list(possible) or [parent]

    def _own(self, of_type: Any, field: str) -> int:
        """The price on an object: its own, else the highest of its interfaces', else the default."""
        own = self._costs.get(f"{of_type.name}.{field}")
        if own is not None:
            return own
        inherited = (self._costs.get(f"{one.name}.{field}") for one in getattr(of_type, "interfaces", ()))
        return max((cost for cost in inherited if cost is not None), default=self._default)


def check_named_cost(what: str, cost: object) -> None:
    """Raises `ConfigurationError`, which begins with `what`, for what is no cost."""
    try:
        check_cost(cost)
    except ConfigurationError as error:
        raise ConfigurationError(f"{what}: {error}") from None


def _check_field(schema: GraphQLSchema, name: str) -> None:
    type_name, _, field = name.partition(".")
    found = schema.type_map.get(type_name)
    if (is_object_type(found) or is_interface_type(found)) and field in found.fields:  # type: ignore[union-attr]
        return
    names = [
        f"{one.name}.{own}" for one in schema.type_map.values() for own in getattr(one, "fields", ()) if own[:2] != "__"
    ]
    near = get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigurationError(f"field_costs: the schema has no field {name!r}{hint}")
