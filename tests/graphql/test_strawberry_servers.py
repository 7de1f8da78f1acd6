"""Strawberry's servers: its Django views, its ASGI application, and its Channels consumers."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

pytest.importorskip("strawberry")

from channels.testing import HttpCommunicator, WebsocketCommunicator
from django.contrib.auth import get_user_model
from django.test import AsyncClient, Client
from strawberry.asgi import GraphQL

from ratelimit.settings import override
from ratelimit.testing import isolated
from tests.graphql.callers import HERE, THERE, User
from tests.graphql.strawberry_site import SCHEMA, consumers

pytestmark = [pytest.mark.usefixtures("limiter"), pytest.mark.urls("tests.graphql.strawberry_site")]

DJANGO_DENIAL = {
    "message": "Limit exceeded: Max 5 requests per minute. Please try again later.",
    "locations": [{"line": 1, "column": 3}],
    "path": ["documents"],
    "extensions": {"code": "RATE_LIMITED", "retry_after": 60, "limit": 5},
}


def body(document: str) -> dict[str, Any]:
    return {"data": {"query": document}, "content_type": "application/json"}


# Django


def test_djangos_sync_view(client: Client) -> None:
    def post(address: str = HERE) -> Any:
        return client.post("/sync", **body("{ documents }"), REMOTE_ADDR=address).json()

    assert [post() for _ in range(5)] == [{"data": {"documents": ["a", "b"]}}] * 5
    assert post() == {"data": None, "errors": [DJANGO_DENIAL]}
    assert "errors" not in post(THERE)


async def apost(document: str, address: str = HERE, cookies: Any = None) -> Any:
    """One operation through Strawberry's async Django view, from that address behind a proxy."""
    client = AsyncClient()
    client.cookies.update(cookies or {})
    with override(proxies_count=1):
        return (await client.post("/async", **body(document), headers={"X-Forwarded-For": address})).json()


@pytest.mark.parametrize("field", ["ping", "plain", "awaited"])
async def test_djangos_async_view(field: str) -> None:
    answers = [await apost(f"{{ {field} }}") for _ in range(3)]
    assert ["errors" in answer for answer in answers] == [False, False, True]
    assert answers[2]["errors"][0]["path"] == [field]
    assert "errors" not in await apost(f"{{ {field} }}", THERE)


@pytest.mark.django_db(transaction=True)
async def test_a_logged_in_user_of_djangos_async_view(async_client: AsyncClient) -> None:
    await async_client.aforce_login(await get_user_model().objects.acreate_user("ada"))
    answers = [await apost("{ ping }", address, async_client.cookies) for address in (HERE, THERE, HERE)]
    assert ["errors" in answer for answer in answers] == [False, False, True]
    assert "errors" not in await apost("{ ping }")


async def test_djangos_request_is_flagged() -> None:
    assert [(await apost("{ limited }"))["data"]["limited"] for _ in range(3)] == [False, True, True]


# ASGI


async def asgi_post(document: str, address: str = HERE, headers: Any = ()) -> Any:
    transport = httpx.ASGITransport(app=GraphQL(SCHEMA), client=(address, 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return (await client.post("/", json={"query": document}, headers=list(headers))).json()


@pytest.mark.parametrize("field", ["ping", "plain", "awaited"])
async def test_asgi(field: str) -> None:
    answers = [await asgi_post(f"{{ {field} }}") for _ in range(3)]
    assert ["errors" in answer for answer in answers] == [False, False, True]
    assert "errors" not in await asgi_post(f"{{ {field} }}", THERE)


async def test_asgi_behind_two_proxies_that_write_a_line_each() -> None:
    lines = [("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-For", "198.51.100.2")]
    with isolated(proxies_count=2):
        answers = [await asgi_post("{ ping }", address, lines) for address in (HERE, THERE, HERE)]
    assert ["errors" in answer for answer in answers] == [False, False, True]


async def test_the_starlette_request_is_flagged() -> None:
    assert [(await asgi_post("{ limited }"))["data"]["limited"] for _ in range(3)] == [False, True, True]


# WebSockets: Strawberry's ASGI application and its Channels consumer


@pytest.mark.django_db(transaction=True)  # Channels closes the thread's old connections after each message
@pytest.mark.parametrize("app", [GraphQL(SCHEMA), consumers["websocket"]], ids=["asgi", "channels"])
@pytest.mark.parametrize("field", ["ticks", "tocks"])
@pytest.mark.parametrize("user", [None, User(7)])
async def test_subscriptions_over_a_websocket(app: Any, field: str, user: Any) -> None:
    kinds = []
    for n in range(3):
        # One user from anywhere, or one address over and over.
        address = HERE if user is None else f"198.51.100.{n}"
        socket = WebsocketCommunicator(app, "/", subprotocols=["graphql-transport-ws"])
        socket.scope.update(client=[address, 4711], user=user)
        assert (await socket.connect())[0]
        await socket.send_json_to({"type": "connection_init"})
        assert (await socket.receive_json_from())["type"] == "connection_ack"
        await socket.send_json_to({"id": "1", "type": "subscribe", "payload": {"query": f"subscription {{ {field} }}"}})
        answer = await socket.receive_json_from()
        kinds.append(answer["type"])
        if answer["type"] == "error":
            assert answer["payload"][0]["extensions"]["code"] == "RATE_LIMITED"
        await socket.disconnect()
    assert kinds == ["next", "next", "error"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("field", ["ping", "plain"])
async def test_the_channels_http_consumer(field: str) -> None:
    async def post(address: str) -> Any:
        sent = json.dumps({"query": f"{{ {field} }}"}).encode()
        headers = [(b"content-type", b"application/json")]
        communicator = HttpCommunicator(consumers["http"], "POST", "/", body=sent, headers=headers)
        communicator.scope["client"] = [address, 4711]
        return json.loads((await communicator.get_response())["body"])

    assert ["errors" in await post(HERE) for _ in range(3)] == [False, False, True]
    assert "errors" not in await post(THERE)
