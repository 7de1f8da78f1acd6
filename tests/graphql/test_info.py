"""Finding `info` among a resolver's arguments, whatever the library and the author of the resolver call it."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import graphql
import pytest

from ratelimit import ConfigurationError
from ratelimit_graphql.info import field_group, find_info

INFO = SimpleNamespace(context=None)


def named(root: Any, info: Any) -> None: ...
def third(cls: type, root: Any, info: Any) -> None: ...
def keyword_only(root: Any, *, info: Any) -> None: ...
def annotated(root: Any, ctx: graphql.GraphQLResolveInfo) -> None: ...
def annotated_as_text(root: Any, ctx: strawberry.Info[Context, None]) -> None: ...  # type: ignore[name-defined] # noqa: F821
def second(parent: Any, i) -> None: ...  # type: ignore[no-untyped-def]
def second_of_any_type(parent: Any, i: Any) -> None: ...
def anything(*args: Any, **kwargs: Any) -> None: ...
def one_and_anything(root: Any, *args: Any) -> None: ...


@functools.wraps(third)
def wrapped(*args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    "resolver",
    [named, annotated, annotated_as_text, second, second_of_any_type, anything, one_and_anything, getattr],
)
def test_info_in_second_place(resolver: Any) -> None:
    call = find_info(resolver, "r").take(("root", INFO, "a"), {"first": 1})
    assert call == ("root", INFO, ("a",), {"first": 1})


@pytest.mark.parametrize("resolver", [third, wrapped])
def test_info_in_third_place(resolver: Any) -> None:
    assert find_info(resolver, "r").take((type, "root", INFO), {"first": 1}) == ("root", INFO, (), {"first": 1})


@pytest.mark.parametrize("resolver", [named, keyword_only, anything])
def test_info_by_keyword(resolver: Any) -> None:
    assert find_info(resolver, "r").take(("root",), {"info": INFO, "first": 1}) == ("root", INFO, (), {"first": 1})


@pytest.mark.parametrize("resolver", [annotated, annotated_as_text])
def test_info_by_another_keyword(resolver: Any) -> None:
    assert find_info(resolver, "r").take(("root",), {"ctx": INFO}) == ("root", INFO, (), {})


def test_root_by_keyword() -> None:
    def root_too(root: Any, info: Any) -> None: ...
    def parent_too(owner: strawberry.Parent[User], info: Any) -> None: ...  # type: ignore[name-defined] # noqa: F821

    assert find_info(root_too, "r").take((), {"root": "root", "info": INFO}) == ("root", INFO, (), {})
    assert find_info(parent_too, "r").take((), {"owner": "root", "info": INFO}) == ("root", INFO, (), {})


def test_an_argument_called_root_stays_an_argument() -> None:
    def resolve(parent: Any, info: Any, root: int) -> None: ...

    assert find_info(resolve, "r").take(("parent", INFO), {"root": 1}) == ("parent", INFO, (), {"root": 1})


def test_types_that_only_sound_like_info_are_arguments() -> None:
    class ContactInfo: ...

    def resolve(self: Any, contact: ContactInfo, info: Any) -> None: ...
    def without(self: Any, contact: ContactInfo) -> None: ...

    call = find_info(resolve, "r").take(("root",), {"contact": "c", "info": INFO})
    assert call == ("root", INFO, (), {"contact": "c"})
    with pytest.raises(ConfigurationError, match="takes no info"):
        find_info(without, "r")


def test_an_info_class_of_the_applications_own() -> None:
    class Info: ...

    class Context(Info): ...

    def resolve(self: Any, first: int, ctx: Any) -> None: ...

    resolve.__annotations__["ctx"] = Context
    assert find_info(resolve, "r").take(("root",), {"first": 1, "ctx": INFO}) == ("root", INFO, (), {"first": 1})


def test_an_argument_called_info_stays_an_argument() -> None:
    assert find_info(anything, "r").take(("root", INFO), {"info": 1}) == ("root", INFO, (), {"info": 1})


def test_a_resolver_that_takes_info_alone() -> None:
    def resolve(info: Any) -> None: ...

    assert find_info(resolve, "r").take((), {"info": INFO, "first": 1}) == (None, INFO, (), {"first": 1})
    assert find_info(resolve, "r").take((INFO,), {}) == (None, INFO, (), {})


def test_a_resolver_without_info_is_an_error_that_names_it() -> None:
    def nothing() -> None: ...
    def root_only(root: Any) -> None: ...
    def argument(self: Any, first: int) -> None: ...
    def keywords(**kwargs: Any) -> None: ...

    for resolver in (nothing, root_only, argument, keywords):
        with pytest.raises(ConfigurationError, match=r"shop\.schema\.items takes no info.*RateLimitExtension"):
            find_info(resolver, "shop.schema.items")


@pytest.mark.parametrize("args", [(), ("root",), ("root", 5), ("root", None)])
def test_a_call_without_info_is_an_error_that_names_the_resolver(args: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigurationError, match=r"shop\.schema\.items was called without info"):
        find_info(anything, "shop.schema.items").take(args, {})


def test_the_group_of_a_field() -> None:
    told = SimpleNamespace(parent_type=SimpleNamespace(name="Query"), field_name="items")
    assert field_group(told, "m.f") == "graphql:Query.items"
    assert field_group(SimpleNamespace(_raw_info=told, field_name="items"), "m.f") == "graphql:Query.items"
    assert field_group(SimpleNamespace(field_name="items"), "m.f") == "graphql:m.f"
    assert field_group(SimpleNamespace(parent_type=told.parent_type), "m.f") == "graphql:m.f"
