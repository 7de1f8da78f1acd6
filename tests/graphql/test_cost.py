"""What an operation costs: fields counted through fragments, directives and sizes, whatever the document is."""

from __future__ import annotations

import math
from typing import Any

import graphql
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import ConfigurationError
from ratelimit_graphql import OperationLimit
from ratelimit_graphql.cost import MAX_COST

SCHEMA = graphql.build_schema(
    """
    interface Node { id: ID, owner: User }
    type User implements Node { id: ID, owner: User, name: String, files(first: Int, last: Int = 20): [File] }
    type File implements Node { id: ID, owner: User, body: String }
    union Found = User | File
    type Query { ping: String, me: User, node: Node, found(limit: Text = "3"): [Found], files(first: Int = 10): [File] }
    type Mutation { login(name: String): User }
    type Subscription { ticks: Int }
    scalar Text
    """
)
ONCE = OperationLimit(rate="1/m")


def cost(text: str, variables: Any = None, name: str | None = None, limit: OperationLimit = ONCE) -> int | None:
    return limit.cost_of(SCHEMA, graphql.parse(text), variables, name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{ ping }", 1),
        ("{ a: ping b: ping c: ping }", 3),
        ("{ me { name id } }", 3),
        ("{ ping ... { ping } ... on Query { ping } }", 3),
        ("{ ...F } fragment F on Query { ping me { id } }", 3),
        ("{ a: me { ...F } b: me { ...F } } fragment F on User { id name }", 6),
        ("{ ...F ...F ...F } fragment F on Query { ping }", 3),
        ("{ me { ...A } } fragment A on User { id owner { ...B } } fragment B on User { id name }", 5),
        ("{ node { ... on User { name } ... on File { body } } }", 3),
        ("mutation { a: login { id } b: login { id } }", 4),
        ("subscription { ticks }", 1),
        ("{ __typename ping }", 1),
        ("{ __schema { types { name fields { name } } } __type(name: \"User\") { name } me { __typename } }", 1),
        ("{ ...Unused } fragment Unused on Query { __typename } fragment Other on Query { ping ping ping }", 0),
    ],
)  # fmt: skip
def test_each_place_where_a_field_is_written_counts(text: str, expected: int) -> None:
    assert cost(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{ ping ...F } fragment F on Query { ping ...F }", 2),
        ("{ ...A } fragment A on Query { ping ...B } fragment B on Query { ping ...A }", 2),
        ("{ ...A ...B } fragment A on Query { ping ...B } fragment B on Query { ping ...A }", None),
        ("{ ping ...Missing }", 1),
        ("{ me { ...F } } fragment F on Nowhere { what { ever } }", 3),
        ("{ what { ever ... on Nowhere { more } } }", 3),
        ("{ ping { name } me }", 3),
        ("subscription { ticks nothing }", 2),
        ("{ ping @skip @include(unless: true) @what(if: false) }", 1),
    ],
)
def test_nothing_in_a_document_makes_it_loop_or_raise(text: str, expected: int | None) -> None:
    found = cost(text)
    assert found == expected or (expected is None and found is not None)


def test_a_schema_without_the_kind_of_operation_is_no_obstacle() -> None:
    small = graphql.build_schema("type Query { ping: String }")
    assert ONCE.cost_of(small, graphql.parse("mutation { login { id } }")) == 2


@pytest.mark.parametrize("depth", [10, 100, 5_000])
def test_fragments_that_nest_exponentially_are_counted_at_once(depth: int) -> None:
    chain = " ".join(f"fragment F{n} on Query {{ ...F{n + 1} ...F{n + 1} }}" for n in range(depth))
    text = f"{{ ...F0 }} {chain} fragment F{depth} on Query {{ ping }}"
    assert cost(text) == min(2**depth, MAX_COST)


def test_a_wide_document_is_counted_in_full() -> None:
    assert cost("{" + "".join(f"a{n}: ping " for n in range(20_000)) + "}") == 20_000
    spreads = "{" + "...F " * 20_000 + "} fragment F on Query { ping me { id } }"
    assert cost(spreads) == 60_000


@pytest.mark.parametrize(
    ("text", "variables", "expected"),
    [
        ("{ ping @skip(if: true) ping @skip(if: false) }", None, 1),
        ("{ ping @include(if: true) ping @include(if: false) }", None, 1),
        ("{ me @skip(if: true) { id name } ping }", None, 1),
        ("{ ... @include(if: false) { ping ping } ping }", None, 1),
        ("{ ...F @skip(if: true) ping } fragment F on Query { ping ping }", None, 1),
        ("{ ping @skip(if: false) @include(if: false) }", None, 0),
        ("query ($x: Boolean!) { ping @skip(if: $x) ping }", {"x": True}, 1),
        ("query ($x: Boolean!) { ping @skip(if: $x) ping }", {"x": False}, 2),
        ("query ($x: Boolean!) { ping @include(if: $x) ping }", {"x": False}, 1),
        ("query ($x: Boolean = false) { ping @include(if: $x) ping }", None, 1),
        ("query ($x: Boolean = false) { ping @include(if: $x) ping }", {"x": True}, 2),
        # What is not known is counted.
        ("query ($x: Boolean!) { ping @skip(if: $x) ping }", {}, 2),
        ("query ($x: Boolean!) { ping @skip(if: $x) ping }", {"x": "true"}, 2),
        ("query ($x: Boolean!) { ping @include(if: $x) ping }", {"x": None}, 2),
        ("query ($x: Boolean!) { ping @include(if: $x) ping }", {"x": 0}, 2),
        ("query ($x: Boolean!) { ping @include(if: $x) ping }", ["x"], 2),
        ("{ ping @skip(if: $nobody) }", None, 1),
        # An executor heeds the first of a name.
        ("{ ping @skip(if: false) @skip(if: true) }", None, 1),
    ],
)
def test_what_is_left_out_is_not_counted_as_far_as_is_known(text: str, variables: Any, expected: int) -> None:
    assert cost(text, variables) == expected


@pytest.mark.parametrize(("name", "expected"), [("A", 1), ("B", 2), ("C", None), ("", None), (None, None), ("F", None)])
def test_the_operation_that_is_asked_for_is_counted(name: str | None, expected: int | None) -> None:
    text = "query A { ping } query B { ...F ...F } fragment F on Query { ping }"
    assert cost(text, name=name) == expected


def test_a_document_without_an_operation_has_no_cost() -> None:
    assert cost("fragment F on Query { ping }") is None
    assert cost("{ ping }", name="A") is None
    assert cost("query A { ping }") == 1


PRICED = OperationLimit(
    rate="1/m", field_costs={"Query.me": 5, "Mutation.login": 10, "File.body": 7, "User.id": 0, "Node.owner": 3}
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{ ping me { name } }", 7),
        ("mutation { a: login { id } b: login { id } }", 20),
        ("{ files { body } }", 8),
        # However a field is reached, it costs what it may turn out to be.
        ("{ node { ... on File { body } } }", 8),
        ("{ node { ...F } } fragment F on File { body }", 8),
        ("{ found { ... on Node { id } } }", 2),
        # A price on an interface holds for those that implement it.
        ("{ me { owner { name } } }", 9),
        ("{ node { owner { name } } }", 5),
        ("{ me { unknown } }", 6),
    ],
)
def test_prices_by_type_and_field(text: str, expected: int) -> None:
    assert cost(text, limit=PRICED) == expected


def test_a_price_of_an_object_is_not_avoided_by_way_of_an_interface() -> None:
    dear = OperationLimit(rate="1/m", field_costs={"File.owner": 50, "Node.owner": 3})
    assert cost("{ node { owner { id } } }", limit=dear) == 52
    assert cost("{ me { owner { id } } }", limit=dear) == 5


def test_only_priced_fields_cost_with_a_default_of_nothing() -> None:
    only = OperationLimit(rate="1/m", field_costs={"Mutation.login": 10}, default_cost=0)
    assert cost("{ ping me { id name } }", limit=only) == 0
    assert cost("mutation { a: login { id } b: login { id } }", limit=only) == 20


def test_introspection_counts_by_choice() -> None:
    counting = OperationLimit(rate="1/m", count_introspection=True)
    assert cost("{ __typename __schema { types { name } } ping }", limit=counting) == 5


SIZED = OperationLimit(rate="1/m", multipliers=("first", "last", "limit"))


@pytest.mark.parametrize(
    ("text", "variables", "expected"),
    [
        ("{ files(first: 5) { id } }", None, 6),
        ("{ files(first: 5) { id owner { name } } }", None, 16),
        ("{ me { files(first: 2) { owner { files(first: 3, last: 1) { id } } } } }", None, 1 + 1 + 20 * (1 + 1 + 3)),
        ("{ files(first: 0) { id } }", None, 2),
        ("{ files(first: -7) { id } }", None, 2),
        ("{ files(first: null) { id } }", None, 2),
        # The schema's defaults.
        ("{ files { id } }", None, 11),
        ("{ me { files(first: 2) { id } } }", None, 22),
        ("{ found { ... on User { id } } }", None, 4),
        # Variables, their defaults, and what they leave open.
        ("query ($n: Int) { files(first: $n) { id } }", {"n": 4}, 5),
        ("query ($n: Int = 6) { files(first: $n) { id } }", {}, 7),
        ("query ($n: Int = 6) { files(first: $n) { id } }", {"n": 2}, 3),
        ("query ($n: Int) { files(first: $n) { id } }", {}, 11),
        # A scalar of the application's own may take a text.
        ('{ found(limit: "40") { ... on User { id } } }', None, 41),
        ("query ($n: Text) { found(limit: $n) { ... on User { id } } }", {"n": " +0040 "}, 41),
        ("query ($n: Text) { found(limit: $n) { ... on User { id } } }", {"n": 2.9}, 3),
        ("query ($n: Text) { found(limit: $n) { ... on User { id } } }", {"n": [5]}, 2),
        ("query ($n: Text) { found(limit: $n) { ... on User { id } } }", {"n": True}, 2),
        ("query ($n: Text) { found(limit: $n) { ... on User { id } } }", {"n": math.nan}, 2),
        ("query ($n: Text) { found(limit: $n) { ... on User { id } } }", {"n": -math.inf}, 2),
        ("{ found(limit: 40.9) { ... on User { id } } }", None, 41),
        ("{ found(limit: 4e1) { ... on User { id } } }", None, 41),
        ("{ found(limit: -4e1) { ... on User { id } } }", None, 2),
        ("{ found(limit: 1e999) { ... on User { id } } }", None, MAX_COST),
        ("query ($n: Text = 4e1) { found(limit: $n) { ... on User { id } } }", {}, 41),
        # A list is as much as it holds.
        ("{ found(limit: [1, 2, 3]) { ... on User { id } } }", None, 4),
        ("query ($n: Text) { found(limit: $n) { ... on User { id } } }", {"n": [1, 2, 3]}, 4),
        ("query ($n: Text = [1, 2]) { found(limit: $n) { ... on User { id } } }", {}, 3),
        ("{ found(limit: []) { ... on User { id } } }", None, 2),
        # Fragments under a size.
        ("{ files(first: 5) { ...F } } fragment F on File { id body }", None, 11),
        ("{ files(first: 5) { ...F ...F } } fragment F on File { id body }", None, 21),
    ],
)
def test_what_is_under_a_sized_field_counts_as_often(text: str, variables: Any, expected: int) -> None:
    assert cost(text, variables, limit=SIZED) == expected


@pytest.mark.parametrize("size", [10**12, 10**40, math.inf, "9" * 5_000])
def test_sums_end_at_a_bound(size: Any) -> None:
    text = "query ($n: Text) { found(limit: $n) { ... on User { id files(first: 9) { id } } } }"
    assert cost(text, {"n": size}, limit=SIZED) == MAX_COST


def test_a_number_of_any_length_in_the_document() -> None:
    assert cost("{ files(first: " + "9" * 10_000 + ") { id } }", limit=SIZED) == MAX_COST


NAMES = [f"F{n}" for n in range(5)]
BODIES = st.lists(st.sampled_from(["ping", *[f"...{name}" for name in NAMES]]), min_size=1, max_size=6)


@given(st.lists(BODIES, min_size=6, max_size=6))
def test_it_is_what_writing_the_fragments_out_gives(bodies: list[list[str]]) -> None:
    """Each fragment may spread those after it."""
    bodies = [[one for one in body if one == "ping" or int(one[-1]) > n - 1] for n, body in enumerate(bodies)]

    def written_out(n: int) -> int:
        return sum(1 if one == "ping" else written_out(int(one[-1]) + 1) for one in bodies[n])

    texts = [" ".join(body) or "__typename" for body in bodies]
    fragments = " ".join(f"fragment {name} on Query {{ {text} }}" for name, text in zip(NAMES, texts[1:], strict=True))
    assert cost(f"{{ {texts[0]} }} {fragments}") == written_out(0)


@given(st.lists(BODIES, min_size=6, max_size=6))
def test_it_ends_whatever_spreads_whatever(bodies: list[list[str]]) -> None:
    fragments = " ".join(
        f"fragment {name} on Query {{ {' '.join(body)} }}" for name, body in zip(NAMES, bodies[1:], strict=True)
    )
    found = cost(f"{{ {' '.join(bodies[0])} }} {fragments}")
    assert found is not None
    assert found >= bodies[0].count("ping")


# What cannot be used


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "either a rule"),
        ({"rate": "10/mm"}, "10/mm"),
        ({"rate": "10/m", "key": "user_ip"}, "user_ip"),
        ({"rate": "10/m", "field_costs": ["Query.me"]}, "no mapping|not a mapping"),
        ({"rate": "10/m", "field_costs": {"me": 1}}, "'me' is no field"),
        ({"rate": "10/m", "field_costs": {"Query.me.id": 1}}, "'Query.me.id' is no field"),
        ({"rate": "10/m", "field_costs": {1: 1}}, "1 is no field"),
        ({"rate": "10/m", "field_costs": {"Query.me": -1}}, r"field_costs\['Query.me'\]: cost -1"),
        ({"rate": "10/m", "field_costs": {"Query.me": 1.5}}, "cost 1.5"),
        ({"rate": "10/m", "default_cost": "1"}, "default_cost: cost '1'"),
        ({"rate": "10/m", "max_cost": -1}, "max_cost: cost -1"),
        ({"rate": "10/m", "invalid_cost": None}, "invalid_cost: cost None"),
        ({"rate": "10/m", "cost": -1}, "cost: cost -1"),
        ({"rate": "10/m", "multipliers": "first"}, r'write \("first", "last"\)'),
        ({"rate": "10/m", "multipliers": [1]}, "multipliers"),
        ({"rate": "10/m", "status": 418}, "status=418"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_an_error_where_it_is_written(options: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        OperationLimit(**options)


@pytest.mark.parametrize("name", ["Query.pong", "Querry.ping", "Found.id", "Text.x"])
def test_a_price_of_a_field_that_is_not_there_is_an_error_when_the_schema_is_seen(name: str) -> None:
    limit = OperationLimit(rate="10/m", field_costs={name: 1})
    with pytest.raises(ConfigurationError, match=f"the schema has no field '{name}'"):
        limit.check_schema(SCHEMA)
    with pytest.raises(ConfigurationError, match=f"the schema has no field '{name}'"):
        limit.cost_of(SCHEMA, graphql.parse("{ ping }"))


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(ConfigurationError, match=r"'Mutation.logn'; did you mean 'Mutation.login'\?"):
        OperationLimit(rate="10/m", field_costs={"Mutation.logn": 10}).check_schema(SCHEMA)
