"""A client of raw ASGI messages, and applications that show what reached them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
JSON = (b"content-type", b"application/json")


@dataclass
class Response:
    """What an application sent."""

    messages: list[Message] = field(default_factory=list)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """A connection's `receive`: the given messages, then `http.disconnect` for ever. Counts the reads."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.left = list(messages)
        self.reads = 0

    async def receive(self) -> Message:
        self.reads += 1
        return self.left.pop(0) if self.left else {"type": "http.disconnect"}


@dataclass
class ToolRunner:
    """An application that runs every `tools/call` it can find, whatever the headers say: an attacker's dream."""

    ran: list[Any] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    after_body: list[Message] = field(default_factory=list)
    scopes: list[Any] = field(default_factory=list)
    listens: bool = True
    """Whether it asks once more for a message after the body, as a server of event streams does."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        if self.listens:
            self.after_body.append(await receive())
        self._run(body)
        await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _run(self, body: bytes) -> None:
        try:
            pending = [json.loads(body)]
        except ValueError:
            return
        while pending:
            value = pending.pop(0)
            if isinstance(value, list):
                pending += value
            elif isinstance(value, dict) and value.get("method") == "tools/call":
                self.ran.append(value["params"]["name"])


def http_scope(
    headers: Sequence[tuple[bytes, bytes]] = (JSON,),
    *,
    method: str = "POST",
    client: tuple[str, int] | None = ("203.0.113.7", 50000),
    **more: Any,
) -> dict[str, Any]:
    """An HTTP scope as servers make it."""
    return {"type": "http", "method": method, "path": "/mcp", "headers": list(headers), "client": client, **more}


def chunks(*parts: bytes) -> list[Message]:
    """A body in so many messages."""
    last = len(parts) - 1
    return [{"type": "http.request", "body": part, "more_body": n < last} for n, part in enumerate(parts)]


async def send_request(
    app: Callable[..., Awaitable[None]], body: Any, scope: dict[str, Any] | None = None, *, wire: Wire | None = None
) -> Response:
    """One request with `body` (bytes, or what is sent as JSON), and its response."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = Response()

    async def send(message: Message) -> None:
        response.messages.append(message)

    await app(scope or http_scope(), (wire or Wire(chunks(raw))).receive, send)
    return response


def tool_call(name: str = "search", request_id: Any = 1, method: str = "tools/call") -> dict[str, Any]:
    """A JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {"name": name, "arguments": {}}}


async def statuses(app: Callable[..., Awaitable[None]], times: int, body: Any = None, **scope: Any) -> list[int]:
    """The status of so many equal requests, one after the other."""
    request = tool_call() if body is None else body
    return [(await send_request(app, request, http_scope(**scope))).status for _ in range(times)]
