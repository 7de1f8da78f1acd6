"""One document with many aliases, or many operations in one request: what each costs, in every library and executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import graphql
import pytest

from ratelimit_graphql import graphql_ratelimit
from tests.graphql.callers import HERE, request
from tests.graphql.schemas import as_coroutine

pytestmark = pytest.mark.usefixtures("limiter")

attempts: list[str] = []
SDL = """
    type Query { ping: String, left: Side, right: Side, items: [Item], hits(first: Int! = 10): Int }
    type Side { ping: String }
    type Item { name: String }
    type Mutation { login(name: String!): Boolean }
"""

Run = Callable[[str], Any]
"""Executes an operation: a result with `data` and `errors`."""


def pong(root: Any, info: Any) -> str:
    return "pong"


def login(root: Any, info: Any, name: str) -> bool:
    attempts.append(name)
    return True


def hits(root: Any, info: Any, first: int) -> int:
    return first


def as_many(root: Any, info: Any, first: int) -> int:
    """A cost that follows from an argument."""
    return first


def limited(sync: bool) -> dict[str, Any]:
    """The limited resolvers, by name."""
    kind = (lambda resolver: resolver) if sync else as_coroutine
    return {
        "ping": graphql_ratelimit(rate="1/s")(kind(pong)),
        "side": graphql_ratelimit(rate="3/m")(kind(pong)),
        "items": graphql_ratelimit(rate="2/m")(kind(lambda root, info: [{"name": "n"}] * 20)),
        "hits": graphql_ratelimit(rate="30/m", cost=as_many)(kind(hits)),
        "login": graphql_ratelimit("AUTH_LOGIN")(kind(login)),
    }


def core(sync: bool) -> Run:
    """graphql-core's own executors."""
    built, resolvers = graphql.build_schema(SDL), limited(sync)
    fields: Any = {name: built.type_map[name].fields for name in ("Query", "Side", "Mutation")}  # type: ignore[attr-defined]
    fields["Query"]["ping"].resolve = resolvers["ping"]
    fields["Query"]["items"].resolve = resolvers["items"]
    fields["Query"]["hits"].resolve = resolvers["hits"]
    fields["Query"]["left"].resolve = fields["Query"]["right"].resolve = lambda *_: {}
    fields["Side"]["ping"].resolve = resolvers["side"]
    fields["Mutation"]["login"].resolve = resolvers["login"]
    if sync:
        return lambda text: graphql.graphql_sync(built, text, context_value=request())
    return lambda text: asyncio.run(graphql.graphql(built, text, context_value=request()))


def ariadne(sync: bool) -> Run:
    from ariadne import MutationType, ObjectType, QueryType, graphql_sync, make_executable_schema
    from ariadne import graphql as graphql_async

    query, side, mutation, resolvers = QueryType(), ObjectType("Side"), MutationType(), limited(sync)
    query.set_field("ping", resolvers["ping"])
    query.set_field("items", resolvers["items"])
    query.set_field("hits", resolvers["hits"])
    query.set_field("left", lambda *_: {})
    query.set_field("right", lambda *_: {})
    side.set_field("ping", resolvers["side"])
    mutation.set_field("login", resolvers["login"])
    built = make_executable_schema(SDL, query, side, mutation)

    def run(text: str) -> Any:
        options: Any = {"context_value": {"request": request()}}
        if sync:
            _, found = graphql_sync(built, {"query": text}, **options)
        else:
            _, found = asyncio.run(graphql_async(built, {"query": text}, **options))
        errors = [SimpleNamespace(**error) for error in found.get("errors", ())]
        return SimpleNamespace(data=found["data"], errors=errors)

    return run


def graphene(sync: bool) -> Run:
    import graphene

    resolvers = limited(sync)

    class Side(graphene.ObjectType):
        ping = graphene.String(resolver=resolvers["side"])

    class Item(graphene.ObjectType):
        name = graphene.String()

    class Query(graphene.ObjectType):
        ping = graphene.String(resolver=resolvers["ping"])
        hits = graphene.Int(first=graphene.Int(required=True, default_value=10), resolver=resolvers["hits"])
        left = graphene.Field(Side, resolver=lambda *_: {})
        right = graphene.Field(Side, resolver=lambda *_: {})
        items = graphene.List(Item, resolver=resolvers["items"])

    class Mutation(graphene.ObjectType):
        login = graphene.Boolean(name=graphene.String(), resolver=resolvers["login"])

    built = graphene.Schema(query=Query, mutation=Mutation)
    if sync:
        return lambda text: built.execute(text, context_value=request())
    return lambda text: asyncio.run(built.execute_async(text, context_value=request()))


def strawberry(sync: bool) -> Run:
    from tests.graphql.strawberry_aliases import schema

    built = schema(sync, attempts, as_many)
    if sync:
        return lambda text: built.execute_sync(text, context_value=request())
    return lambda text: asyncio.run(built.execute(text, context_value=request()))


LIBRARIES = [make for make in (core, ariadne, graphene, strawberry) if make is core or find_spec(make.__name__)]


@pytest.fixture(params=[True, False], ids=["sync", "async"])
def sync(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=LIBRARIES, ids=lambda make: make.__name__)
def run(request: pytest.FixtureRequest, sync: bool) -> Run:
    attempts.clear()
    return request.param(sync)  # type: ignore[no-any-return]


def codes(result: Any) -> list[str]:
    return [error.extensions["code"] for error in result.errors or ()]


def test_of_two_aliases_exactly_one_has_data_and_the_other_is_an_error_at_its_path(run: Run) -> None:
    result = run("{ a: ping b: ping }")
    (name,) = [alias for alias, found in result.data.items() if found is None]
    assert sorted(result.data.values(), key=str) == [None, "pong"]
    assert [(error.path, error.extensions["code"]) for error in result.errors] == [([name], "RATE_LIMITED")]


def test_of_a_hundred_aliases_of_a_login_five_reach_the_resolver(run: Run) -> None:
    aliases = " ".join(f'a{n}: login(name: "{n}")' for n in range(100))
    result = run(f"mutation {{ {aliases} }}")
    assert attempts == ["0", "1", "2", "3", "4"]
    assert [name for name, found in result.data.items() if found] == [f"a{n}" for n in range(5)]
    assert codes(result) == ["RATE_LIMITED"] * 95


def test_a_fragment_counts_for_each_execution_and_not_for_each_mention(run: Run) -> None:
    text = "{ left { ...F } right { ...F } } fragment F on Side { ping }"
    assert not run(text).errors
    assert codes(run(text)) == ["RATE_LIMITED"]
    once = "{ items { name } ...F ...F } fragment F on Query { items { name } }"
    assert [codes(run(once)) for _ in range(3)] == [[], [], ["RATE_LIMITED"]]


def test_a_limited_list_counts_once_however_many_objects_it_has(run: Run) -> None:
    results = [run("{ items { name } }") for _ in range(3)]
    assert [result.data["items"] and len(result.data["items"]) for result in results] == [20, 20, None]


def test_a_cost_follows_from_the_arguments(run: Run) -> None:
    result = run("{ a: hits(first: 5) b: hits(first: 20) c: hits d: hits(first: 5) e: hits(first: 31) }")
    assert result.data == {"a": 5, "b": 20, "c": None, "d": 5, "e": None}
    assert [(*error.path, error.extensions["retry_after"]) for error in result.errors] == [("c", 60), ("e", None)]


@pytest.mark.urls("tests.graphql.graphene_site")
def test_a_batch_of_two_operations_counts_two_with_graphene_django() -> None:
    pytest.importorskip("graphene_django")
    from django.test import Client

    body = [{"query": 'mutation { rename(name: "x") { name } }'}] * 2
    first, second = (Client().post("/batch", body, content_type="application/json", REMOTE_ADDR=HERE) for _ in range(2))
    assert [bool(one["data"]["rename"]) for one in first.json()] == [True, True]
    assert [bool(one["data"]["rename"]) for one in second.json()] == [False, False]
    assert (first.status_code, second.status_code) == (200, 200)


async def test_a_batch_of_two_operations_counts_two_with_strawberry() -> None:
    pytest.importorskip("strawberry")
    import httpx
    from strawberry.asgi import GraphQL

    from tests.graphql.operations import QUIET
    from tests.graphql.strawberry_operations import schema

    transport = httpx.ASGITransport(app=GraphQL(schema(QUIET)), client=(HERE, 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answers = [await client.post("/", json=[{"query": "{ scarce }"}] * 2) for _ in range(2)]
    assert [[one["data"]["scarce"] for one in answer.json()] for answer in answers] == [["here"] * 2, [None] * 2]
    assert [answer.status_code for answer in answers] == [200, 200]
