"""Strawberry's schemas: what the decorator leaves of a resolver's signature, and the extension."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

pytest.importorskip("strawberry")

import strawberry

from ratelimit import ConfigurationError
from ratelimit_graphql import RateLimitExceeded, graphql_ratelimit
from ratelimit_graphql.strawberry import RateLimitExtension
from tests.graphql.callers import THERE, request
from tests.graphql.strawberry_site import SCHEMA

pytestmark = pytest.mark.usefixtures("limiter")


async def run(document: str, context: Any, schema: Any = SCHEMA) -> tuple[Any, list[Any]]:
    """An operation's data, and the paths at which it was limited."""
    result = await schema.execute(document, context_value=context)
    errors = result.errors or []
    assert all(error.extensions.get("code") == "RATE_LIMITED" for error in errors), errors
    return result.data, [error.path for error in errors]


def test_the_schema_is_what_it_would_be_without_limits() -> None:
    sdl = SCHEMA.as_str()
    assert "documents(first: Int! = 2): [String!]!" in sdl
    assert '"""The documents."""' in sdl or "The documents." not in sdl
    assert "ping: String!" in sdl
    assert "login(name: String!): String!" in sdl
    assert "ticks: Int!" in sdl
    assert "info" not in sdl


@pytest.mark.parametrize("field", ["ping", "plain", "awaited"])
async def test_either_form_on_either_kind_of_resolver(field: str) -> None:
    answers = [await run(f"{{ {field} }}", {"request": request()}) for _ in range(3)]
    assert answers == [
        *[({field: {"ping": "pong", "plain": "plain", "awaited": "x"}[field]}, [])] * 2,
        (None, [[field]]),
    ]
    assert (await run(f"{{ {field} }}", {"request": request(THERE)}))[1] == []


def test_the_sync_executor() -> None:
    for field in ("documents", "plain"):
        errors = [bool(SCHEMA.execute_sync(f"{{ {field} }}", context_value=request()).errors) for _ in range(6)]
        assert errors == [False] * (5 if field == "documents" else 2) + [True] * (1 if field == "documents" else 4)


async def test_each_alias_and_argument_counts() -> None:
    data, paths = await run('mutation { a: login(name: "1") b: login(name: "2") }', request())
    assert (data, paths) == ({"a": "1", "b": "2"}, [])
    results = await asyncio.gather(*(run('mutation { login(name: "x") }', request()) for _ in range(10)))
    assert [bool(paths) for _, paths in results].count(False) == 3


async def test_a_field_without_a_resolver_is_limited_by_the_extension() -> None:
    result = await SCHEMA.execute("{ items { name } }", context_value=request())
    assert [error.path for error in result.errors or []] == [["items", 3, "name"]]


async def test_one_extension_on_several_fields_does_not_share() -> None:
    once = RateLimitExtension(rate="1/m")

    @strawberry.type
    class Query:
        a: int = strawberry.field(resolver=lambda: 1, extensions=[once])
        b: int = strawberry.field(resolver=lambda: 1, extensions=[once])

    schema = strawberry.Schema(Query)
    assert (await run("{ a b }", request(), schema))[1] == []
    assert (await run("{ a }", request(), schema))[1] == [["a"]]


async def test_callables_get_the_source_the_info_and_the_arguments() -> None:
    seen: list[Any] = []

    def key(root: Any, info: Any, **arguments: Any) -> str:
        seen.append((type(root).__name__, type(info).__name__, info.field_name, arguments))
        return "everybody"

    @strawberry.type
    class Node:
        @strawberry.field
        @graphql_ratelimit(rate="9/m", key=key)
        def decorated(self, info: strawberry.Info, first: int) -> int:
            return first

        @strawberry.field
        @graphql_ratelimit(rate="9/m", key=key)
        def renamed(self, ctx: strawberry.Info, first: int) -> int:
            return first

        @strawberry.field
        @staticmethod
        @graphql_ratelimit(rate="9/m", key=key)
        async def rooted(root: strawberry.Parent[Node], info: strawberry.Info, first: int) -> int:
            return first

        @strawberry.field(extensions=[RateLimitExtension(rate="9/m", key=key)])
        def extended(self, first: int) -> int:
            return first

        @strawberry.field(extensions=[RateLimitExtension(rate="9/m", key=key)])
        def collision(self, source: int, next_: int) -> int:
            return source + next_

    globals()["Node"] = Node

    @strawberry.type
    class Query:
        @strawberry.field
        def node(self) -> Node:
            return Node()

    fields = "decorated(first: 1) renamed(first: 2) rooted(first: 3) extended(first: 4)"
    schema = strawberry.Schema(Query)
    data, paths = await run(f"{{ node {{ {fields} }} }}", request(), schema)
    assert (data["node"], paths) == ({"decorated": 1, "renamed": 2, "rooted": 3, "extended": 4}, [])
    assert sorted(seen, key=lambda one: one[3]["first"]) == [
        ("Node", "Info", name, {"first": n}) for n, name in enumerate(("decorated", "renamed", "rooted", "extended"), 1)
    ]
    data, _ = await run("{ node { collision(source: 1, next_: 2) } }", request(), schema)
    assert data == {"node": {"collision": 3}}


def test_a_resolver_without_info_is_refused_where_it_is_decorated() -> None:
    with pytest.raises(ConfigurationError, match=r"Query\.plain takes no info.*RateLimitExtension"):

        class Query:
            @graphql_ratelimit(rate="1/m")
            def plain(self) -> int:
                return 1

    with pytest.raises(ConfigurationError, match="takes no info"):

        @graphql_ratelimit(rate="1/m")
        def first(self: Any, first: int) -> int:
            return 1


def test_the_wrong_order_of_decorators_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="StrawberryField"):

        @strawberry.type
        class Query:
            @graphql_ratelimit(rate="1/m")
            @strawberry.field
            def plain(self, info: strawberry.Info) -> int:
                return 1


def test_the_extension_refuses_what_cannot_be_used() -> None:
    for arguments in ({"rate": "10/mm"}, {"rule": "NO_SUCH"}, {"rate": "1/m", "key": "user_ip"}, {}):
        with pytest.raises(ConfigurationError):
            RateLimitExtension(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="RateLimitExtension"):
        RateLimitExtension(lambda root, info: "1/m")  # type: ignore[arg-type]


async def test_flagging_limits_in_both_forms_on_one_field() -> None:
    @strawberry.type
    class Query:
        @strawberry.field(extensions=[RateLimitExtension(rate="1/m", block=False)])
        @graphql_ratelimit(rate="9/m", group="inner", block=False)
        async def outside(self, info: strawberry.Info) -> bool:
            return bool(info.context.limited)

        @strawberry.field(extensions=[RateLimitExtension(rate="1/m", block=False)])
        @graphql_ratelimit(rate="9/m", group="inner", block=False)
        def plainly(self, info: strawberry.Info) -> bool:
            return bool(info.context.limited)

    schema = strawberry.Schema(Query)
    context = request()
    for field in ("outside", "plainly"):
        assert [(await run(f"{{ {field} }}", context, schema))[0][field] for _ in range(2)] == [False, True]


@pytest.mark.parametrize("field", ["ticks", "tocks"])
async def test_subscriptions(field: str) -> None:
    async def events() -> list[Any]:
        stream = await SCHEMA.subscribe(f"subscription {{ {field} }}", context_value={"request": request()})
        return [event.data or event.errors[0].extensions["code"] async for event in stream]

    assert [await events() for _ in range(3)] == [[{field: 1}], [{field: 1}], ["RATE_LIMITED"]]


def test_kinds_of_functions_are_kept() -> None:
    async def ping(self: Any, info: strawberry.Info) -> str:
        return ""

    limited = graphql_ratelimit(rate="1/m")(ping)
    assert inspect.iscoroutinefunction(limited)
    assert inspect.signature(limited) == inspect.signature(ping)


@pytest.mark.parametrize("quiet", [False, True])
async def test_strawberrys_own_log_of_a_denial_can_be_left_out(caplog: pytest.LogCaptureFixture, quiet: bool) -> None:
    class Quiet(strawberry.Schema):  # type: ignore[misc, name-defined]
        def process_errors(self, errors: list[Any], execution_context: Any = None) -> None:
            others = [error for error in errors if not isinstance(error.original_error or error, RateLimitExceeded)]
            super().process_errors(others, execution_context)

    @strawberry.type
    class Query:
        item: int = strawberry.field(resolver=lambda: 1, extensions=[RateLimitExtension(rate="0/m")])

        @strawberry.field
        def broken(self) -> int | None:
            raise LookupError("broken")

    schema = (Quiet if quiet else strawberry.Schema)(Query)
    await schema.execute("{ item broken }", context_value=request())
    await schema.execute("{ broken }", context_value=request())
    logged = [record for record in caplog.records if record.name == "strawberry.execution"]
    assert len(logged) == (1 if quiet else 2)
    assert sum(record.name == "ratelimit" for record in caplog.records) == 1
