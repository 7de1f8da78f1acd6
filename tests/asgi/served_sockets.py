"""A Starlette application for the tests that run a real server: capped connections, and a limit on messages."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute

from ratelimit import Limiter, MemoryStore, set_limiter
from ratelimit.testing import FakeClock
from ratelimit_asgi import WebsocketConnectionLimit, WebsocketMessageLimit
from tests.asgi.echo import echo

set_limiter(Limiter(MemoryStore(), clock=FakeClock()))


async def gauges(request: Any) -> JSONResponse:
    return JSONResponse({"connections": await capped.cap.ataken("ip:127.0.0.1"), "held": capped.cap.held})


app = Starlette(routes=[Route("/gauges/", gauges), WebSocketRoute("/ws/", echo)])
messages = WebsocketMessageLimit(app, rate="3/m", exempt=lambda message: message.get("text") == "ping", close_after=2)
capped = WebsocketConnectionLimit(messages, 2)
application = capped
