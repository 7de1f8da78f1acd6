"""Whole operations under Ariadne: ASGI and WSGI in memory, and ASGI behind Uvicorn with real clients."""

from __future__ import annotations

import io
import json
from typing import Any

import ariadne
import graphql
import httpx
import pytest
from starlette.requests import Request

from ratelimit import ConfigurationError
from ratelimit.settings import override
from ratelimit.testing import isolated
from ratelimit_graphql import OperationLimit
from ratelimit_graphql.ariadne import LimitedGraphQL, LimitedHTTPHandler, LimitedWSGIGraphQL, limited_root
from tests.graphql.ariadne_operations import SCHEMA, asgi, wsgi
from tests.graphql.callers import HERE, THERE, User
from tests.graphql.loops import served
from tests.graphql.operations import LOUD, QUIET, pings, ran, refusal
from tests.graphql.sockets import opened

pytestmark = pytest.mark.usefixtures("limiter", "nothing_ran")


class Answer:
    """A status, headers by lower-case name, and a body."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers}
        self.body = json.loads(body) if "json" in self.headers["content-type"] else body.decode()


async def over_asgi(app: Any, body: Any, address: str = HERE) -> Answer:
    transport = httpx.ASGITransport(app=app, client=(address, 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.post("/", json=body)
    return Answer(response.status_code, response.headers.items(), response.content)


async def over_wsgi(app: Any, body: Any, address: str = HERE) -> Answer:
    sent = json.dumps(body).encode()
    started: list[Any] = []
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(sent)),
        "wsgi.input": io.BytesIO(sent),
        "REMOTE_ADDR": address,
    }
    content = b"".join(app(environ, lambda *given: started.append(given)))
    ((status, headers),) = started
    return Answer(int(status.split()[0]), headers, content)


@pytest.fixture(params=[(asgi, over_asgi), (wsgi, over_wsgi)], ids=["asgi", "wsgi"])
def kind(request: pytest.FixtureRequest) -> Any:
    """How an application is made, and how it is asked."""
    return request.param


async def test_a_refused_operation_is_answered_with_one_error_and_nothing_of_it_runs(kind: Any) -> None:
    make, ask = kind
    app = make()
    assert (await ask(app, {"query": pings(8)})).body["data"]["a7"] == "pong"
    answer = await ask(app, {"query": pings(3)})
    assert (answer.status, answer.body) == (200, {"errors": [refusal(3)], "data": None})
    assert "retry-after" not in answer.headers
    assert ran == ["ping"] * 8
    assert (await ask(app, {"query": pings(3)}, THERE)).body["data"]


async def test_by_choice_a_refusal_is_status_429_with_its_wait(kind: Any) -> None:
    make, ask = kind
    app = make(LOUD)
    await ask(app, {"query": pings(8)})
    answer = await ask(app, {"query": pings(3)})
    assert (answer.status, answer.body) == (429, {"errors": [refusal(3)], "data": None})
    shown = {name: answer.headers[name] for name in ("retry-after", "cache-control", "access-control-expose-headers")}
    assert shown == {"retry-after": "60", "cache-control": "no-store", "access-control-expose-headers": "Retry-After"}
    dear = await ask(app, {"query": pings(10)})
    assert (dear.status, "retry-after" in dear.headers) == (429, False)
    passing = await ask(app, {"query": "{ ping }"})
    assert (passing.status, "retry-after" in passing.headers) == (200, False)


async def test_every_response_has_the_limits_headers_in_the_style_of_the_settings(kind: Any) -> None:
    make, ask = kind
    app = make()
    with isolated(headers="x"):
        left = [(await ask(app, {"query": pings(4)})).headers["x-ratelimit-remaining"] for _ in range(3)]
        assert left == ["6", "2", "2"]


async def test_the_headers_tell_of_the_limit_that_constrains_most(kind: Any) -> None:
    make, ask = kind
    app = make()
    with isolated(headers="x"):
        answers = [await ask(app, {"query": "{ scarce }"}) for _ in range(3)]
        shown = [(one.headers["x-ratelimit-limit"], one.headers["x-ratelimit-remaining"]) for one in answers]
        assert shown == [("2", "1"), ("2", "0"), ("2", "0")]
        assert [(one.status, "retry-after" in one.headers) for one in answers] == [(200, False)] * 3


@pytest.mark.parametrize(
    "body",
    [
        {"query": "{ what }"},
        {"query": "{"},
        {"query": "query A { ping }", "operationName": "B"},
        {"query": "subscription { ticks }"},
        {"query": 5},
        ["{ ping }"],
    ],
)
async def test_a_document_that_cannot_be_executed_counts_one_and_gets_ariadnes_own_answer(kind: Any, body: Any) -> None:
    make, ask = kind
    plain = await ask(make(OperationLimit(rate="0/m", invalid_cost=0)), body)
    assert (plain.status, "RATE_LIMITED" in json.dumps(plain.body)) == (400, False)
    app = make()
    for _ in range(4):
        answer = await ask(app, body)
        assert (answer.status, answer.body) == (plain.status, plain.body)
    assert (await ask(app, {"query": pings(7)})).body["data"] is None
    for _ in range(9):
        await ask(app, body)
    assert (await ask(app, {"query": "{ ping }"})).body == {"errors": [refusal(1)], "data": None}


async def test_variables_and_operation_names_reach_the_count(kind: Any) -> None:
    make, ask = kind
    app = make()
    text = "query A($x: Boolean!) { ping a: ping @include(if: $x) } query B { ping b: ping c: ping }"
    with isolated(headers="x"):
        bodies: list[Any] = [
            {"query": text, "operationName": "A", "variables": {"x": False}},
            {"query": text, "operationName": "A", "variables": {"x": True}},
            {"query": text, "operationName": "B"},
        ]
        assert [(await ask(app, body)).headers["x-ratelimit-remaining"] for body in bodies] == ["9", "7", "4"]


async def test_prices_and_introspection(kind: Any) -> None:
    make, ask = kind
    app = make()
    for _ in range(3):
        assert (await ask(app, {"query": graphql.get_introspection_query()})).body["data"]["__schema"]
    if make is asgi:
        assert (await ask(app, {"query": "mutation { a: login b: login c: login }"})).body["data"]
        assert (await ask(app, {"query": "mutation { a: login }"})).body == {"errors": [refusal(3)], "data": None}
        assert ran == ["login"] * 3


@pytest.mark.parametrize("root", ["fixed", lambda *_: "called", lambda *given: f"{given[1]} of {len(given)}"])
async def test_a_root_value_of_the_applications_own_is_kept(kind: Any, root: Any) -> None:
    make, ask = kind
    expected = root if isinstance(root, str) else root(None, "Q", None, None)
    app = make(root_value=root)
    assert (await ask(app, {"query": "query Q { root }", "operationName": "Q"})).body == {"data": {"root": expected}}


async def test_a_root_value_that_is_awaited() -> None:
    async def root(*_: Any) -> str:
        return "awaited"

    assert (await over_asgi(asgi(root_value=root), {"query": "{ root }"})).body == {"data": {"root": "awaited"}}


async def test_a_context_without_a_request_tells_the_caller_all_the_same(kind: Any) -> None:
    make, ask = kind
    app = make(LOUD, context_value=lambda request, data: {"user": 7})
    assert (await ask(app, {"query": pings(8)})).status == 200
    answer = await ask(app, {"query": pings(3)}, THERE)
    assert (answer.status, answer.headers["retry-after"]) == (429, "60")


async def test_handle_request_of_an_app_that_is_mounted() -> None:
    app = asgi(LOUD)
    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")], "client": (HERE, 1)}

    async def receive() -> Any:
        return {"type": "http.request", "body": json.dumps({"query": pings(6)}).encode()}

    responses = [await app.handle_request(Request({**scope}, receive)) for _ in range(2)]
    assert [response.status_code for response in responses] == [200, 429]


async def test_ariadnes_functions_take_the_root_value_alone() -> None:
    root = limited_root(OperationLimit(rate="2/m"), SCHEMA)
    context = {"user": User(7)}
    answers = [
        await ariadne.graphql(SCHEMA, {"query": "{ ping }"}, context_value=context, root_value=root) for _ in range(3)
    ]
    assert [success for success, _ in answers] == [True, True, False]
    success, events = await ariadne.subscribe(
        SCHEMA, {"query": "subscription { ticks }"}, context_value=context, root_value=root
    )
    assert (success, events[0]["extensions"]["code"]) == (False, "RATE_LIMITED")  # type: ignore[index]


def test_what_cannot_be_used_is_an_error_where_the_application_is_made() -> None:
    with pytest.raises(ConfigurationError, match="operation_limit='10/m'"):
        LimitedGraphQL(SCHEMA, operation_limit="10/m")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="operation_limit=None"):
        LimitedWSGIGraphQL(SCHEMA, operation_limit=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="operation_limit=5"):
        LimitedHTTPHandler(5)  # type: ignore[arg-type]
    misspelt = OperationLimit(rate="1/m", field_costs={"Mutation.logn": 3})
    for make in (LimitedGraphQL, LimitedWSGIGraphQL):
        with pytest.raises(ConfigurationError, match=r"did you mean 'Mutation.login'"):
            make(SCHEMA, operation_limit=misspelt)


# Behind Uvicorn


async def test_a_real_client_over_http() -> None:
    with served(asgi(LOUD)) as address, override(headers="ietf"):
        async with httpx.AsyncClient(trust_env=False) as client:
            answers = [await client.post(f"http://{address}/", json={"query": pings(4)}) for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 429]
    assert answers[2].json() == {"errors": [refusal(4)], "data": None}
    names = ("content-type", "retry-after", "cache-control", "ratelimit", "ratelimit-policy")
    assert {name: answers[2].headers[name] for name in names} == {
        "content-type": "application/json",
        "retry-after": "60",
        "cache-control": "no-store",
        "ratelimit": '"graphql:operations";r=2;t=60',
        "ratelimit-policy": '"graphql:operations";q=10;w=60',
    }


async def test_operations_over_a_real_websocket_take_their_cost_when_they_begin() -> None:
    with served(asgi(QUIET)) as address:
        socket = await opened(address)
        ticks = await socket.operation(1, "subscription { ticks }")
        assert ticks == [*(("next", {"data": {"ticks": n}}) for n in range(3)), ("complete", None)]
        assert (await socket.operation(2, pings(8)))[0][0] == "next"
        assert await socket.operation(3, "{ a: ping b: ping }") == [("error", [refusal(2)])]
        assert (await socket.operation(4, "subscription { ticks }"))[-1] == ("complete", None)
        assert await socket.operation(5, "subscription { ticks }") == [("error", [refusal(1)])]
        assert ran.count("ticks") == 2
        await socket.close()


async def test_each_event_of_a_counted_subscription_counts_over_a_real_websocket() -> None:
    with served(asgi(OperationLimit(rate="99/m"))) as address:
        socket = await opened(address)
        messages = await socket.operation(1, "subscription { counted }")
        denied = {"message": "Limit exceeded: Max 3 requests per minute. Please try again later."}
        assert messages[:2] == [("next", {"data": {"counted": n}}) for n in range(2)]
        assert [kind for kind, _ in messages] == ["next", "next", "next", "complete"]
        (error,) = messages[2][1]["errors"]
        assert error["message"] == denied["message"]
        assert error["extensions"] == {"code": "RATE_LIMITED", "retry_after": 60, "limit": 3}
        assert ran == ["closed"]
        ((kind, _),) = await socket.operation(2, "subscription { counted }")
        assert kind == "error"
        await socket.close()
