"""An ASGI application for the tests that run a real server: the clock stands still, `?user=7` logs user 7 in."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.urls import path

if not settings.configured:
    settings.configure(SECRET_KEY="for this test", USE_TZ=True)

from ratelimit import Limiter, MemoryStore, set_limiter
from ratelimit.testing import FakeClock
from ratelimit_channels import WebsocketConnectionLimit, WebsocketHandshakeLimit, WebsocketMessageLimit
from tests.channels.consumers import Counted, Decorated, Failing, Guarded, Json, Leaving, Sync

set_limiter(Limiter(MemoryStore(), clock=FakeClock()))


def logged_in(app: Any) -> Any:
    async def with_user(scope: Any, receive: Any, send: Any) -> None:
        named = parse_qs(scope["query_string"].decode()).get("user")
        user = SimpleNamespace(pk=named[0], is_authenticated=True) if named else None
        await app({**scope, "user": user}, receive, send)

    return with_user


capped = WebsocketConnectionLimit(Counted.as_asgi(), 2)
failing = WebsocketConnectionLimit(Failing.as_asgi(), 1, name="failing")
messages = WebsocketMessageLimit(
    Json.as_asgi(rule="WS_HEARTBEAT"),
    rate="2/m",
    exempt=lambda message: message.get("text") == '"ping"',
    close_after=3,
)
routes = URLRouter(
    [
        path("json/", Json.as_asgi()),
        path("silent/", Json.as_asgi(send_message=False)),
        path("leaving/", Leaving.as_asgi(rate="0/m")),
        path("sync/", Sync.as_asgi()),
        path("guarded/", Guarded.as_asgi()),
        path("handshake/", WebsocketHandshakeLimit(Json.as_asgi(rule="WS_HEARTBEAT"), rate="2/m")),
        path("capped/", capped),
        path("failing/", failing),
        path("messages/", messages),
        path("decorated/", Decorated.as_asgi()),
    ]
)


async def gauges(scope: Any, receive: Any, send: Any) -> None:
    """How many places are taken, and how many consumers were made, as JSON."""
    taken = {limit.cap.name: await limit.cap.ataken("ip:127.0.0.1") for limit in (capped, failing)}
    body = json.dumps({**taken, "connects": Counted.connects, "held": capped.cap.held}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})


# Around everything, so that the servers' other scopes meet it too.
everything = ProtocolTypeRouter({"websocket": logged_in(routes), "http": gauges})
application = WebsocketConnectionLimit(everything, lambda caller: None)
