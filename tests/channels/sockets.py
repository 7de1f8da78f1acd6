"""A caller with an open socket, by Channels' own test client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from channels.testing import WebsocketCommunicator

ADDRESS = "203.0.113.7"
EXTENSIONS = {"websocket.http.response": {}}
"""What a server offers that can answer a handshake."""


def user(pk: int, **facts: Any) -> SimpleNamespace:
    """A logged-in user."""
    return SimpleNamespace(pk=pk, is_authenticated=True, **facts)


ANONYMOUS = SimpleNamespace(pk=None, is_authenticated=False)


def scope_of(address: str | None = ADDRESS, **scope: Any) -> dict[str, Any]:
    """A WebSocket scope as a server makes it; without `client` if there is no address."""
    client = {} if address is None else {"client": [address, 4711]}
    return {"type": "websocket", "path": "/ws/", "headers": [], "subprotocols": [], **client, **scope}


def socket(app: Any, address: str | None = ADDRESS, **scope: Any) -> WebsocketCommunicator:
    """A socket that has not been opened yet."""
    one = WebsocketCommunicator(app, "/ws/")
    one.scope.update(scope_of(address, **scope))
    return one


@asynccontextmanager
async def opened(app: Any, address: str | None = ADDRESS, **scope: Any) -> AsyncIterator[WebsocketCommunicator]:
    """An open socket."""
    one = socket(app, address, **scope)
    connected, _ = await one.connect()
    assert connected
    yield one
    await one.disconnect()


async def ask(one: WebsocketCommunicator) -> Any:
    """What comes back for one message."""
    await one.send_to(text_data='{"question": "why?"}')
    return json.loads(await one.receive_from())


async def ask_all(one: WebsocketCommunicator, times: int) -> list[str]:
    """The types of what comes back for so many messages."""
    return [(await ask(one))["type"] for _ in range(times)]
