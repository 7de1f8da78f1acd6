"""Ariadne: its ASGI application with real Starlette requests, its WebSocket handler and its WSGI application."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from ariadne import MutationType, QueryType, SubscriptionType, make_executable_schema
from ariadne.asgi import GraphQL
from ariadne.asgi.handlers import GraphQLTransportWSHandler
from ariadne.wsgi import GraphQL as WSGIGraphQL
from channels.testing import WebsocketCommunicator
from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser
from starlette.middleware.authentication import AuthenticationMiddleware

from ratelimit.testing import isolated
from ratelimit_graphql import graphql_ratelimit
from tests.graphql.callers import HERE, THERE, User

pytestmark = pytest.mark.usefixtures("limiter")

query, mutation, subscription = QueryType(), MutationType(), SubscriptionType()


@query.field("ping")
@graphql_ratelimit(rate="2/m")
async def resolve_ping(root: Any, info: Any) -> str:
    return "pong"


@query.field("plain")
@graphql_ratelimit(rate="2/m")
def resolve_plain(root: Any, info: Any) -> str:
    return "plain"


@query.field("limited")
@graphql_ratelimit(rate="1/m", block=False)
def resolve_limited(root: Any, info: Any) -> bool:
    request = info.context["request"]
    return bool(request["limited"] if isinstance(request, dict) else request.limited)


@mutation.field("login")
@graphql_ratelimit("AUTH_LOGIN")
async def resolve_login(root: Any, info: Any, name: str) -> str:
    return name


@subscription.source("ticks")
@graphql_ratelimit(rate="2/m")
async def subscribe_ticks(root: Any, info: Any) -> AsyncIterator[int]:
    yield 1


@subscription.field("ticks")
def resolve_tick(tick: int, info: Any) -> int:
    return tick


SCHEMA = make_executable_schema(
    """
    type Query { ping: String, plain: String, limited: Boolean }
    type Mutation { login(name: String!): String }
    type Subscription { ticks: Int! }
    """,
    query,
    mutation,
    subscription,
)


async def ask(app: Any, document: str, address: str = HERE, headers: Any = ()) -> dict[str, Any]:
    """One operation over HTTP, from a client at that address."""
    transport = httpx.ASGITransport(app=app, client=(address, 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.post("/", json={"query": document}, headers=list(headers))
    assert response.status_code == 200
    return response.json()  # type: ignore[no-any-return]


@pytest.mark.parametrize("field", ["ping", "plain"])
async def test_asgi_counts_by_the_connections_address(field: str) -> None:
    app = GraphQL(SCHEMA)
    answers = [await ask(app, f"{{ {field} }}") for _ in range(3)]
    assert ["errors" in answer for answer in answers] == [False, False, True]
    assert answers[2]["errors"][0]["path"] == [field]
    assert answers[2]["errors"][0]["extensions"]["code"] == "RATE_LIMITED"
    assert "errors" not in await ask(app, f"{{ {field} }}", THERE)


async def test_aliases_of_a_mutation_are_attempts() -> None:
    aliases = " ".join(f'a{n}: login(name: "{n}")' for n in range(100))
    answer = await ask(GraphQL(SCHEMA), f"mutation {{ {aliases} }}")
    assert [data for data in answer["data"].values() if data] == ["0", "1", "2", "3", "4"]


async def test_several_forwarding_lines_are_one_chain() -> None:
    lines = [("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-For", "198.51.100.2")]
    with isolated(proxies_count=2):
        app = GraphQL(SCHEMA)
        answers = [await ask(app, "{ ping }", address, lines) for address in (HERE, THERE, HERE)]
        assert ["errors" in answer for answer in answers] == [False, False, True]
        assert "errors" not in await ask(app, "{ ping }", HERE, [("X-Forwarded-For", "198.51.100.3"), lines[1]])


async def test_without_block_the_starlette_request_is_flagged() -> None:
    app = GraphQL(SCHEMA)
    assert [(await ask(app, "{ limited }"))["data"]["limited"] for _ in range(3)] == [False, True, True]


async def test_a_user_of_starlettes_middleware() -> None:
    class Account(BaseUser):
        pk = 7
        is_authenticated = True

    class Backend(AuthenticationBackend):
        async def authenticate(self, conn: Any) -> Any:
            return AuthCredentials(), Account()

    app = AuthenticationMiddleware(GraphQL(SCHEMA), backend=Backend())
    answers = [await ask(app, "{ ping }", address) for address in (HERE, THERE, HERE)]
    assert ["errors" in answer for answer in answers] == [False, False, True]


async def test_a_user_of_the_contexts_own() -> None:
    app = GraphQL(SCHEMA, context_value=lambda request, _: {"request": request, "user": User(7)})
    answers = [await ask(app, "{ ping }", address) for address in (HERE, THERE, HERE)]
    assert ["errors" in answer for answer in answers] == [False, False, True]


async def test_subscriptions_over_a_websocket() -> None:
    app = GraphQL(SCHEMA, websocket_handler=GraphQLTransportWSHandler())
    socket = WebsocketCommunicator(app, "/", subprotocols=["graphql-transport-ws"])  # type: ignore[arg-type]
    socket.scope["client"] = [HERE, 4711]
    assert (await socket.connect())[0]
    await socket.send_json_to({"type": "connection_init"})
    assert (await socket.receive_json_from())["type"] == "connection_ack"
    answers = []
    for n in range(3):
        await socket.send_json_to({"id": str(n), "type": "subscribe", "payload": {"query": "subscription { ticks }"}})
        answers.append(await socket.receive_json_from())
        if answers[-1]["type"] == "next":
            assert (await socket.receive_json_from())["type"] == "complete"
    assert [answer["type"] for answer in answers] == ["next", "next", "error"]
    assert "RATE_LIMITED" in json.dumps(answers[2])
    await socket.disconnect()


def wsgi_ask(document: str, address: str = HERE, **headers: str) -> dict[str, Any]:
    """One operation through Ariadne's WSGI application."""
    body = json.dumps({"query": document}).encode()
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "REMOTE_ADDR": address,
        **headers,
    }
    return json.loads(b"".join(WSGIGraphQL(SCHEMA)(environ, lambda *_: None)))  # type: ignore[no-any-return]


def test_wsgi_counts_by_the_environs_address() -> None:
    assert ["errors" in wsgi_ask("{ plain }") for _ in range(3)] == [False, False, True]
    assert "errors" not in wsgi_ask("{ plain }", THERE)


def test_wsgi_behind_a_proxy() -> None:
    with isolated(proxies_count=1):
        chain = {"HTTP_X_FORWARDED_FOR": "198.51.100.9, 198.51.100.1"}
        assert ["errors" in wsgi_ask("{ plain }", one, **chain) for one in (HERE, THERE, HERE)] == [False, False, True]


def test_without_block_the_environ_is_flagged() -> None:
    assert [wsgi_ask("{ limited }")["data"]["limited"] for _ in range(2)] == [False, True]
