"""WebSocket connections and messages under limits, in Starlette, FastAPI, Litestar and any other ASGI application.

Who calls is what the scope tells: its user, its address, its token.
"""

from __future__ import annotations

from ratelimit.messages import MessageLimit
from ratelimit.websockets import ConnectionLimit


class WebsocketConnectionLimit(ConnectionLimit):
    """ASGI middleware: at most `most` connections at once for each caller, in all processes that share the store.

    Put it inside the auth middleware, so that a logged-in user is counted as one.
    """


class WebsocketMessageLimit(MessageLimit):
    """ASGI middleware: limits what clients send over open connections. A refused message does not reach the application; its
    sender gets the denial frame. Everything else passes, in order.

    Put it inside the auth middleware, so that a logged-in user is counted as one.
    """
