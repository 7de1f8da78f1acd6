"""Whole operations under Graphene, and graphene-django's view: through Django's test client, and served for real."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

pytest.importorskip("graphene_django")

import graphql
import httpx
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.test import Client, RequestFactory
from graphene_django.views import GraphQLView

from ratelimit import ConfigurationError
from ratelimit.settings import override
from ratelimit.testing import isolated
from ratelimit_graphql import OperationLimit, OperationLimitExceeded
from ratelimit_graphql.graphene import OperationLimitMixin, limited_execution
from tests.graphql.callers import HERE, THERE, request
from tests.graphql.graphene_operations import SCHEMA, View
from tests.graphql.operations import QUIET, pings, ran, refusal

pytestmark = [pytest.mark.usefixtures("limiter", "nothing_ran"), pytest.mark.urls("tests.graphql.graphene_operations")]


def post(path: str, query: Any, address: str = HERE, **more: Any) -> Any:
    body = {"query": query, **more} if isinstance(query, str) else query
    return Client().post(path, body, content_type="application/json", REMOTE_ADDR=address)


def test_a_refused_operation_is_answered_with_one_error_and_nothing_of_it_runs() -> None:
    assert post("/graphql", pings(8)).json()["data"]["a7"] == "pong"
    response = post("/graphql", pings(3))
    assert (response.status_code, response["Content-Type"]) == (200, "application/json")
    assert response.json() == {"errors": [refusal(3)], "data": None}
    assert not response.has_header("Retry-After")
    assert ran == ["ping"] * 8
    assert post("/graphql", pings(3), THERE).json()["data"]


def test_by_choice_a_refusal_is_status_429_with_its_wait() -> None:
    post("/loud", pings(8))
    response = post("/loud", pings(3))
    assert (response.status_code, response.json()) == (429, {"errors": [refusal(3)], "data": None})
    assert {name: response[name] for name in ("Retry-After", "Cache-Control", "Access-Control-Expose-Headers")} == {
        "Retry-After": "60",
        "Cache-Control": "no-store",
        "Access-Control-Expose-Headers": "Retry-After",
    }
    for passing in (post("/loud", "{ ping }"), post("/loud", "{ what }")):
        assert passing.status_code in (200, 400)
        assert not passing.has_header("Retry-After")


def test_a_wait_that_never_ends_has_no_header() -> None:
    response = post("/loud", pings(10))
    assert response.status_code == 429
    assert response.json()["errors"][0]["message"] == "Operation too expensive: it costs 10, the limit is 9."
    assert not response.has_header("Retry-After")
    assert post("/loud", pings(9)).status_code == 200


@pytest.mark.parametrize(
    ("style", "name", "values"),
    [
        ("x", "X-RateLimit-Remaining", ["6", "2", "2"]),
        (
            "ietf",
            "RateLimit",
            [f'"graphql:operations";r={left};t=60' for left in (6, 2, 2)],
        ),
    ],
)
def test_every_response_has_the_limits_headers_in_the_style_of_the_settings(
    style: str, name: str, values: list[str]
) -> None:
    with isolated(headers=style):
        assert [post("/graphql", pings(4))[name] for _ in range(3)] == values


def test_the_headers_tell_of_the_limit_that_constrains_most() -> None:
    with isolated(headers="x"):
        answers = [post("/graphql", "{ scarce }") for _ in range(3)]
        assert [(one["X-RateLimit-Limit"], one["X-RateLimit-Remaining"]) for one in answers] == [
            ("2", "1"),
            ("2", "0"),
            ("2", "0"),
        ]
        assert [one.status_code for one in answers] == [200] * 3


def test_aliases_of_a_mutation_are_priced() -> None:
    assert post("/graphql", "mutation { a: login { ok } b: login { ok } }").json()["data"]
    assert post("/graphql", "mutation { a: login { ok } }").json()["data"] is None
    assert ran == ["login"] * 2
    assert post("/graphql", "{ a: ping b: ping }").json()["data"]


def test_variables_and_operation_names_reach_the_count() -> None:
    text = "query A($x: Boolean!) { ping a: ping @include(if: $x) } query B { ping b: ping c: ping }"
    with isolated(headers="x"):
        left = [
            post("/graphql", text, operationName="A", variables={"x": False})["X-RateLimit-Remaining"],
            post("/graphql", text, operationName="A", variables='{"x": true}')["X-RateLimit-Remaining"],
            post("/graphql", text, operationName="B")["X-RateLimit-Remaining"],
        ]
        assert left == ["9", "7", "4"]


@pytest.mark.parametrize(
    "body",
    [
        {"query": "{ what }"},
        {"query": "{"},
        {"query": "query A { ping }", "operationName": "B"},
        {"query": "query ($x: Int!) { ping }"},
        {"query": "{ ping }", "variables": 5},
    ],
)
def test_a_document_that_cannot_be_executed_counts_one_and_gets_the_views_own_answer(body: Any) -> None:
    plain = Client().post("/graphql", body, content_type="application/json")
    assert plain.status_code == 400
    assert "RATE_LIMITED" not in plain.content.decode()
    for _ in range(12):
        assert post("/graphql", body).content == plain.content
    assert post("/graphql", "{ ping }").json() == {"errors": [refusal(1)], "data": None}


def test_what_is_no_operation_costs_nothing() -> None:
    for _ in range(20):
        assert post("/graphql", {}).status_code == 400
        assert Client().get("/graphql", {"query": "mutation { login { ok } }"}, REMOTE_ADDR=HERE).status_code == 405
        assert Client().put("/graphql", REMOTE_ADDR=HERE).status_code == 405
    assert post("/graphql", pings(9)).json()["data"]


def test_introspection_is_free() -> None:
    for _ in range(3):
        assert post("/graphql", graphql.get_introspection_query()).json()["data"]["__schema"]
    assert post("/graphql", pings(9)).json()["data"]


def test_a_get_request_is_charged() -> None:
    codes = [Client().get("/loud", {"query": pings(6)}, REMOTE_ADDR=HERE).status_code for _ in range(2)]
    assert codes == [200, 429]


def test_the_explorer_is_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GraphQLView, "render_graphiql", lambda *_, **__: HttpResponse("page"))
    for _ in range(12):
        page = Client().get("/graphiql", HTTP_ACCEPT="text/html", REMOTE_ADDR=HERE)
        assert page.content == b"page"
    assert post("/graphiql", pings(9)).json()["data"]


# Batches


def test_each_operation_of_a_batch_is_charged() -> None:
    batch = [{"id": f"{n}", "query": pings(4)} for n in range(4)]
    response = post("/batch", batch)
    answers = response.json()
    assert response.status_code == 200
    assert [bool(answer["data"]) for answer in answers] == [True, True, False, False]
    assert answers[2] == {"errors": [refusal(4)], "data": None, "id": "2", "status": 200}
    assert len(ran) == 8


def test_a_long_batch_is_no_way_around() -> None:
    answers = post("/batch", [{"query": "{ ping }"}] * 500).json()
    assert [bool(answer["data"]) for answer in answers] == [True] * 10 + [False] * 490
    assert len(ran) == 10


def test_a_batch_of_which_something_ran_is_not_status_429() -> None:
    some = post("/loud-batch", [{"query": pings(8)}, {"query": pings(3)}])
    assert (some.status_code, [one["status"] for one in some.json()]) == (200, [200, 429])
    assert not some.has_header("Retry-After")
    none = post("/loud-batch", [{"query": pings(8)}, {"query": pings(3)}])
    assert (none.status_code, [one["status"] for one in none.json()]) == (429, [429, 429])
    assert none["Retry-After"] == "60"


def test_a_batch_keeps_the_views_own_status_for_what_is_wrong() -> None:
    mixed = post("/loud-batch", [{"query": pings(9)}, {"query": "{ what }"}, {"query": pings(3)}])
    assert (mixed.status_code, [one["status"] for one in mixed.json()]) == (400, [200, 400, 429])


# The view's own options


def test_a_view_without_a_limit_is_an_error_where_it_is_made() -> None:
    class Bare(OperationLimitMixin, GraphQLView):
        pass

    with pytest.raises(ConfigurationError, match="Bare: operation_limit=None is no OperationLimit"):
        Bare.as_view(schema=SCHEMA)
    with pytest.raises(ConfigurationError, match="operation_limit='10/m'"):
        Bare.as_view(schema=SCHEMA, operation_limit="10/m")
    assert Bare.as_view(schema=SCHEMA, operation_limit=QUIET)


def test_a_mixin_that_would_have_no_effect_is_an_error_where_it_is_written() -> None:
    with pytest.raises(ConfigurationError, match="Wrong: OperationLimitMixin has no effect after GraphQLView"):

        class Wrong(GraphQLView, OperationLimitMixin):
            operation_limit = QUIET

    class Right(View):
        def execute_graphql_request(self, *args: Any, **kwargs: Any) -> Any:
            return super().execute_graphql_request(*args, **kwargs)

    assert Right.as_view(schema=SCHEMA)


def test_a_context_that_cannot_be_made_is_the_views_error_and_counts_nothing() -> None:
    class Broken(View):
        def get_context(self, request: Any) -> Any:
            raise LookupError("no session")

    body = json.dumps({"query": "{ ping }"})
    made = RequestFactory().post("/", body, content_type="application/json", REMOTE_ADDR=HERE)
    view = Broken.as_view(schema=SCHEMA)
    for _ in range(12):
        assert json.loads(view(made).content) == {"errors": [{"message": "no session"}]}
    assert post("/graphql", pings(9)).json()["data"]


def test_a_misspelt_price_is_an_error_before_anything_runs() -> None:
    limit = OperationLimit(rate="10/m", field_costs={"Mutation.logn": 3})
    view = View.as_view(schema=SCHEMA, operation_limit=limit)
    with pytest.raises(ConfigurationError, match=r"Mutation.login"):
        view(RequestFactory().post("/", {"query": "{ ping }"}, content_type="application/json"))


def test_an_execution_context_of_the_views_own_is_kept() -> None:
    class Own(graphql.ExecutionContext):
        def execute_operation(self, operation: Any, root_value: Any) -> Any:
            ran.append("own")
            return super().execute_operation(operation, root_value)

    view = View.as_view(schema=SCHEMA, execution_context_class=Own)
    made = RequestFactory().post("/", json.dumps({"query": pings(6)}), content_type="application/json")
    codes = [json.loads(view(made).content)["data"] is None for _ in range(2)]
    assert codes == [False, True]
    assert ran.count("own") == 1


def test_a_context_of_the_views_own_tells_the_caller() -> None:
    class Own(View):
        def get_context(self, request: Any) -> Any:
            return {"request": request, "user": int(request.headers["X-User"])}

    view = Own.as_view(schema=SCHEMA)

    def refused(user: str, query: str) -> bool:
        body = json.dumps({"query": query})
        made = RequestFactory().post("/", body, content_type="application/json", headers={"X-User": user})
        return "RATE_LIMITED" in view(made).content.decode()

    assert [refused(user, pings(6)) for user in "112"] == [False, True, False]
    assert [refused("3", "{ what }") for _ in range(10)] == [False] * 10
    assert [refused(user, "{ ping }") for user in "34"] == [True, False]


# Graphene without Django


def test_graphenes_own_execution() -> None:
    execution = limited_execution(OperationLimit(rate="3/m"))
    results = [
        SCHEMA.execute("{ a: ping b: ping }", context_value=request(), execution_context_class=execution)
        for _ in range(2)
    ]
    assert results[0].data == {"a": "pong", "b": "pong"}
    (error,) = results[1].errors
    assert isinstance(error, OperationLimitExceeded)
    assert (results[1].data, error.path, error.extensions["cost"]) == (None, None, 2)
    assert ran == ["ping"] * 2


async def test_graphenes_async_execution() -> None:
    execution = limited_execution(OperationLimit(rate="3/m"), asynchronous=True)
    results = [
        await SCHEMA.execute_async("{ a: ping b: ping }", context_value=request(), execution_context_class=execution)
        for _ in range(2)
    ]
    assert results[0].data == {"a": "pong", "b": "pong"}
    assert (results[1].data, results[1].errors[0].extensions["code"]) == (None, "RATE_LIMITED")


async def test_async_resolvers_are_awaited_after_the_check() -> None:
    async def resolve(root: Any, info: Any) -> str:
        ran.append("ping")
        return "pong"

    schema = graphql.build_schema("type Query { ping: String }")
    schema.query_type.fields["ping"].resolve = resolve  # type: ignore[union-attr]
    execution = limited_execution(OperationLimit(rate="1/m"), asynchronous=True)
    results = [
        await graphql.graphql(schema, "{ ping }", context_value=request(), execution_context_class=execution)
        for _ in range(2)
    ]
    assert [result.data for result in results] == [{"ping": "pong"}, None]
    assert ran == ["ping"]


# Served


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    """The URLs of this module behind a WSGI server of its own."""
    with make_server("127.0.0.1", 0, get_wsgi_application(), handler_class=_Quiet) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


def test_a_real_client_of_a_real_server(server: str) -> None:
    with httpx.Client(trust_env=False) as client, override(headers="ietf"):
        answers = [client.post(f"{server}/loud", json={"query": pings(4)}) for _ in range(3)]
        assert [one.status_code for one in answers] == [200, 200, 429]
        refused = answers[2]
        assert refused.json() == {"errors": [refusal(4)], "data": None}
        shown = {
            name: refused.headers[name] for name in ("Retry-After", "RateLimit", "RateLimit-Policy", "Cache-Control")
        }
        assert shown == {
            "Retry-After": "60",
            "RateLimit": '"graphql:operations";r=2;t=60',
            "RateLimit-Policy": '"graphql:operations";q=10;w=60',
            "Cache-Control": "no-store",
        }
        batch = client.post(f"{server}/batch", json=[{"query": "{ ping }"}] * 5)
        assert [bool(one["data"]) for one in batch.json()] == [True, True, False, False, False]
