"""A server in raw ASGI messages: what it offers, and what it was sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]


def http(path: str = "/", method: str = "GET", headers: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """The scope of a request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        "client": ("203.0.113.7", 51344),
        "server": ("127.0.0.1", 80),
        **more,
    }


def websocket(path: str = "/", **more: Any) -> dict[str, Any]:
    """The scope of a handshake, by a server that can answer it with a response."""
    scope = http(path, extensions={"websocket.http.response": {}}, **more)
    del scope["method"]
    return scope | {"type": "websocket", "scheme": "ws", "subprotocols": []}


@dataclass
class Connection:
    """One connection: `receive` gives the messages, then says that the client has left; `send` keeps what is sent."""

    scope: dict[str, Any]
    messages: Sequence[Message] = ({"type": "http.request", "body": b"", "more_body": False},)
    sent: list[Message] = field(default_factory=list)
    reads: int = 0

    async def receive(self) -> Message:
        self.reads += 1
        given = list(self.messages)[self.reads - 1 :]
        return given[0] if given else {"type": f"{self.scope['type']}.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(app: Any, scope: dict[str, Any] | None = None) -> Connection:
    """What `app` sends to one request or handshake."""
    scope = http() if scope is None else scope
    first = {"type": "websocket.connect"} if scope["type"] == "websocket" else {"type": "http.request", "body": b""}
    one = Connection(scope, [first])
    await app(scope, one.receive, one.send)
    return one


async def statuses(app: Any, times: int, *args: Any, **more: Any) -> list[int]:
    """The status codes of so many requests."""
    return [(await ask(app, http(*args, **more))).status for _ in range(times)]


async def ok(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers `ok`, and accepts every WebSocket."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"ok"})
