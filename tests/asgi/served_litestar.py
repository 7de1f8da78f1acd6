"""A Litestar application behind the middleware, for tests in the process and on a real server."""

from __future__ import annotations

from typing import Any

from litestar import Litestar, Request, WebSocket, get, websocket
from litestar.middleware import DefineMiddleware

from ratelimit_asgi import PathRule, RateLimitMiddleware


@get("/items")
async def items(request: Request[Any, Any, Any]) -> str:
    return str(request.scope.get("limit_key"))


@websocket("/chat")
async def chat(socket: WebSocket[Any, Any, Any]) -> None:
    await socket.accept()
    await socket.send_text("hello")
    await socket.close()


limits = DefineMiddleware(
    RateLimitMiddleware,
    paths=[PathRule("/items", "2/h anchored"), PathRule("/chat", "1/h anchored")],
    user=lambda scope: dict(scope["headers"]).get(b"x-verified", b"").decode() or None,
)
application = Litestar([items, chat], middleware=[limits])
