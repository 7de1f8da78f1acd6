"""Whole operations under Strawberry: both executors, Django's views, Channels, and ASGI behind Uvicorn with real clients."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("strawberry")

import graphql
import httpx
import strawberry
from channels.testing import HttpCommunicator
from django.core.asgi import get_asgi_application
from django.test import AsyncClient, Client
from strawberry.asgi import GraphQL
from strawberry.extensions import MaskErrors, ValidationCache

from ratelimit import ConfigurationError
from ratelimit.settings import override
from ratelimit.testing import isolated
from ratelimit_graphql import OperationLimit, RateLimitExceeded
from ratelimit_graphql.strawberry import OperationLimitExtension, RateLimitExtension, SyncOperationLimitExtension
from tests.graphql.callers import HERE, THERE, request
from tests.graphql.loops import served
from tests.graphql.operations import LOUD, QUIET, pings, ran, refusal
from tests.graphql.sockets import opened
from tests.graphql.strawberry_operations import Query, channels, schema

pytestmark = [
    pytest.mark.usefixtures("limiter", "nothing_ran"),
    pytest.mark.urls("tests.graphql.strawberry_operations"),
]


class Execution:
    """Runs operations by one of Strawberry's executors."""

    def __init__(self, sync: bool) -> None:
        self.sync = sync

    def schema(self, limit: OperationLimit) -> Any:
        return schema(limit, self.sync)

    def __call__(self, of: Any, text: str, **options: Any) -> Any:
        context = {"request": request()}
        if self.sync:
            return of.execute_sync(text, context_value=context, **options)
        return asyncio.run(of.execute(text, context_value=context, **options))


@pytest.fixture(params=[True, False], ids=["sync", "async"])
def execute(request: pytest.FixtureRequest) -> Execution:
    return Execution(request.param)


def test_a_refused_operation_is_one_error_and_nothing_of_it_runs(execute: Execution) -> None:
    built = execute.schema(QUIET)
    assert execute(built, pings(8)).errors is None
    result = execute(built, pings(3))
    assert (result.data, [error.formatted for error in result.errors]) == (None, [refusal(3)])
    assert ran == ["ping"] * 8


def test_prices_variables_names_and_introspection(execute: Execution) -> None:
    built = execute.schema(QUIET)
    for _ in range(3):
        assert execute(built, graphql.get_introspection_query()).errors is None
    assert execute(built, "mutation { a: login b: login }").errors is None
    text = "query A($x: Boolean!) { ping @skip(if: $x) } query B { ping }"
    assert execute(built, text, variable_values={"x": True}, operation_name="A").errors is None
    assert execute(built, text, variable_values={"x": False}, operation_name="A").errors is None
    result = execute(built, "mutation { a: login b: login }")
    assert result.errors[0].extensions["cost"] == 6
    assert ran == ["login", "login", "ping"]


@pytest.mark.parametrize("text", ["{ what }", "{"])
def test_a_document_that_cannot_be_executed_counts_one_and_gets_its_own_error(execute: Execution, text: str) -> None:
    built = execute.schema(QUIET)
    for _ in range(12):
        (error,) = execute(built, text).errors
        assert not error.extensions
    assert execute(built, "{ ping }").errors[0].formatted == refusal(1)


def test_the_first_operation_counts_where_none_is_named(execute: Execution) -> None:
    """Strawberry goes on with the first operation's name, and an anonymous one beside others is not valid."""
    built = execute.schema(QUIET)
    assert execute(built, "query A { ping } query B { a: ping b: ping }").data == {"ping": "pong"}
    assert execute(built, pings(9)).errors is None


def test_extensions_that_cache_validation_or_mask_errors_leave_the_limit_in_force(execute: Execution) -> None:
    limit = SyncOperationLimitExtension if execute.sync else OperationLimitExtension
    built = strawberry.Schema(
        Query, extensions=[MaskErrors, lambda: limit(OperationLimit(rate="1/m")), lambda: ValidationCache(maxsize=8)]
    )
    results = [execute(built, "{ ping }") for _ in range(2)]
    assert [result.data for result in results] == [{"ping": "pong"}, None]


async def test_at_once_no_more_runs_than_there_is() -> None:
    built = schema(QUIET)
    results = await asyncio.gather(*(built.execute(pings(3), context_value=request()) for _ in range(20)))
    assert sum(result.errors is None for result in results) == 3
    assert len(ran) == 9


async def test_the_async_form_is_refused_where_it_would_block() -> None:
    result = schema(QUIET).execute_sync("{ ping }", context_value=request())
    assert "failed to complete synchronously" in result.errors[0].message
    assert ran == []


@pytest.mark.filterwarnings("ignore:.*instance:DeprecationWarning")
def test_an_extension_that_is_to_serve_all_operations_serves_none_after_the_first(execute: Execution) -> None:
    kind = SyncOperationLimitExtension if execute.sync else OperationLimitExtension
    built = strawberry.Schema(Query, extensions=[kind(LOUD)])
    assert execute(built, "{ ping }").data == {"ping": "pong"}
    result = execute(built, "{ ping }")
    assert "write extensions=[lambda:" in result.errors[0].message
    assert ran == ["ping"]


def test_an_extension_of_what_is_no_limit() -> None:
    for kind in (OperationLimitExtension, SyncOperationLimitExtension):
        with pytest.raises(ConfigurationError, match="'10/m' is no OperationLimit"):
            kind("10/m")


@pytest.mark.parametrize("quiet", [False, True])
def test_strawberrys_own_log_of_a_refusal_can_be_left_out(
    execute: Execution, caplog: pytest.LogCaptureFixture, quiet: bool
) -> None:
    class Quiet(strawberry.Schema):  # type: ignore[misc]
        def process_errors(self, errors: list[Any], execution_context: Any = None) -> None:
            others = [error for error in errors if not isinstance(error.original_error or error, RateLimitExceeded)]
            super().process_errors(others, execution_context)

    kind = SyncOperationLimitExtension if execute.sync else OperationLimitExtension
    built = (Quiet if quiet else strawberry.Schema)(Query, extensions=[lambda: kind(OperationLimit(rate="0/m"))])
    assert execute(built, "{ ping }").data is None
    assert sum(record.name == "strawberry.execution" for record in caplog.records) == (0 if quiet else 1)


# Over HTTP


async def over_django_sync(path: str, body: Any, address: str = HERE) -> Any:
    client = Client(REMOTE_ADDR=address)
    return await asyncio.to_thread(client.post, path, body, content_type="application/json")


async def over_django_async(path: str, body: Any, address: str = HERE) -> Any:
    # Its client has no address but a header can bring one.
    return await AsyncClient().post(path, body, content_type="application/json", headers={"X-Forwarded-For": address})


@pytest.fixture(params=[("sync", over_django_sync), ("async", over_django_async)], ids=["sync", "async"])
def view(request: pytest.FixtureRequest) -> Any:
    """A view's path, and how it is asked."""
    return request.param


async def test_djangos_views_answer_a_refusal(view: Any) -> None:
    path, post = view
    with override(proxies_count=1 if path == "async" else 0):
        await post(f"/{path}", {"query": pings(8)})
        response = await post(f"/{path}", {"query": pings(3)})
        assert (response.status_code, response.json()) == (200, {"data": None, "errors": [refusal(3)]})
        assert not response.has_header("Retry-After")
        assert (await post(f"/{path}", {"query": pings(3)}, THERE)).json()["data"]


async def test_djangos_views_answer_429_by_choice(view: Any) -> None:
    path, post = view
    with override(headers="ietf"):
        await post(f"/loud-{path}", {"query": pings(8)})
        response = await post(f"/loud-{path}", {"query": pings(3)})
    assert (response.status_code, response.json()) == (429, {"data": None, "errors": [refusal(3)]})
    names = ("Content-Type", "Retry-After", "Cache-Control", "RateLimit", "RateLimit-Policy")
    assert {name: response[name] for name in names} == {
        "Content-Type": "application/json",
        "Retry-After": "60",
        "Cache-Control": "no-store",
        "RateLimit": '"graphql:operations";r=2;t=60',
        "RateLimit-Policy": '"graphql:operations";q=10;w=60',
    }


async def test_each_operation_of_a_batch_is_charged(view: Any) -> None:
    path, post = view
    answers = (await post(f"/{path}", [{"query": "{ ping }"}] * 500)).json()
    assert [bool(answer["data"]) for answer in answers].count(True) == 10  # the async view runs them side by side
    assert len(ran) == 10


@pytest.mark.parametrize("order", [1, -1])
async def test_a_batch_of_which_something_ran_is_not_status_429(view: Any, order: int) -> None:
    path, post = view
    batch = [{"query": pings(10)}, {"query": pings(8)}][::order]
    some = await post(f"/loud-{path}", batch)
    assert [bool(answer["data"]) for answer in some.json()] == [False, True][::order]
    assert (some.status_code, some.has_header("Retry-After"), some.has_header("Cache-Control")) == (200, False, False)
    none = await post(f"/loud-{path}", [{"query": pings(8)}, {"query": pings(3)}])
    assert (none.status_code, none["Retry-After"]) == (429, "60")


async def test_a_field_of_its_own_limit_has_headers_and_status_200() -> None:
    with isolated(headers="x"):
        answers = [await over_django_async("/async", {"query": "{ scarce }"}) for _ in range(3)]
        shown = [(one["X-RateLimit-Limit"], one["X-RateLimit-Remaining"]) for one in answers]
        assert shown == [("2", "1"), ("2", "0"), ("2", "0")]
        assert [(one.status_code, one.has_header("Retry-After")) for one in answers] == [(200, False)] * 3


async def test_an_unknown_operation_counts_one_and_gets_strawberrys_answer(view: Any) -> None:
    path, post = view
    for _ in range(10):
        response = await post(f"/{path}", {"query": "query A { ping }", "operationName": "B"})
        assert response.status_code == 400
    assert (await post(f"/{path}", {"query": "{ ping }"})).json()["errors"] == [refusal(1)]


@pytest.mark.django_db(transaction=True)
async def test_channels_http_consumer() -> None:
    async def post(query: str) -> Any:
        sent = json.dumps({"query": query}).encode()
        headers = [(b"content-type", b"application/json")]
        communicator = HttpCommunicator(app, "POST", "/", body=sent, headers=headers)
        communicator.scope["client"] = [HERE, 4711]
        return await communicator.get_response()

    app = channels(LOUD)
    assert (await post(pings(8)))["status"] == 200
    refused = await post(pings(3))
    assert (refused["status"], json.loads(refused["body"])) == (429, {"data": None, "errors": [refusal(3)]})
    assert (b"Retry-After", b"60") in refused["headers"]


# Behind Uvicorn


async def test_a_real_client_over_http() -> None:
    with served(GraphQL(schema(LOUD))) as address, override(headers="x"):
        async with httpx.AsyncClient(trust_env=False) as client:
            answers = [await client.post(f"http://{address}/", json={"query": pings(4)}) for _ in range(3)]
            batch = await client.post(f"http://{address}/", json=[{"query": pings(3)}, {"query": "{ ping }"}])
    assert [(one.status_code, one.headers["x-ratelimit-remaining"]) for one in answers] == [
        (200, "6"),
        (200, "2"),
        (429, "2"),
    ]
    assert (answers[2].headers["retry-after"], answers[2].json()) == ("60", {"data": None, "errors": [refusal(4)]})
    assert (batch.status_code, [bool(one["data"]) for one in batch.json()]) == (200, [False, True])


@pytest.mark.parametrize("path", ["loud-sync", "loud-async"])
async def test_a_real_client_of_djangos_views(path: str) -> None:
    with served(get_asgi_application()) as address, override(headers="x"):
        async with httpx.AsyncClient(trust_env=False) as client:
            answers = [await client.post(f"http://{address}/{path}", json={"query": pings(4)}) for _ in range(3)]
    assert [(one.status_code, one.headers["x-ratelimit-remaining"]) for one in answers] == [
        (200, "6"),
        (200, "2"),
        (429, "2"),
    ]
    assert (answers[2].headers["retry-after"], answers[2].json()) == ("60", {"data": None, "errors": [refusal(4)]})


async def test_operations_over_a_real_websocket_take_their_cost_when_they_begin() -> None:
    with served(GraphQL(schema(LOUD))) as address:
        socket = await opened(address)
        ticks = [*(("next", {"data": {"ticks": n}}) for n in range(3)), ("complete", None)]
        assert await socket.operation(1, "subscription { ticks }") == ticks
        assert [kind for kind, _ in await socket.operation(2, pings(8))] == ["next", "complete"]
        assert await socket.operation(3, "{ a: ping b: ping }") == [("error", [refusal(2)])]
        assert await socket.operation(4, "subscription { ticks }") == ticks
        refused = await socket.operation(5, "subscription { ticks }")
        assert refused == [("next", {"data": None, "errors": [refusal(1)]}), ("complete", None)]
        assert ran.count("ticks") == 2
        await socket.close()


async def test_each_event_of_a_counted_subscription_counts_over_a_real_websocket() -> None:
    with served(GraphQL(schema(OperationLimit(rate="99/m")))) as address:
        socket = await opened(address)
        messages = await socket.operation(1, "subscription { counted }")
        assert messages[:2] == [("next", {"data": {"counted": n}}) for n in range(2)]
        assert [kind for kind, _ in messages] == ["next", "next", "next", "complete"]
        assert messages[2][1]["data"] is None
        (error,) = messages[2][1]["errors"]
        assert error["extensions"] == {"code": "RATE_LIMITED", "retry_after": 60, "limit": 3}
        assert ran == ["closed"]
        ((kind, _),) = await socket.operation(2, "subscription { counted }")
        assert kind == "error"
        await socket.close()


def test_per_event_on_what_is_no_subscription_is_an_error_when_the_schema_is_made() -> None:
    @strawberry.type
    class Wrong:
        x: int = strawberry.field(resolver=lambda: 1, extensions=[RateLimitExtension(rate="1/m", per_event=True)])

    with pytest.raises(TypeError, match="per_event=True on x, which is no subscription"):  # graphql-core's, of ours
        strawberry.Schema(Wrong)
