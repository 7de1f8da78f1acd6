"""Connections and messages under limits, kept before a consumer is made and before it sees them."""

from __future__ import annotations

from ratelimit import Identity
from ratelimit.asgi import Scope
from ratelimit.messages import MessageLimit
from ratelimit.settings import Settings
from ratelimit.websockets import ConnectionLimit
from ratelimit_channels.caller import aidentify


class WebsocketConnectionLimit(ConnectionLimit):
    """ASGI middleware: at most `most` connections at once for each caller, in all processes that share the store.

    Put it inside the auth middleware, so that a logged-in user is counted as one. A refused connection is never accepted: see
    `WebsocketHandshakeLimit`.
    """

    async def identify(self, scope: Scope, settings: Settings) -> Identity:
        """Who is at the other end of a connection; a user that is not loaded yet is loaded in a thread."""
        return await aidentify(scope, settings)


class WebsocketMessageLimit(MessageLimit):
    """ASGI middleware: limits what clients send over open connections. A refused message does not reach the consumer; its
    sender gets the denial frame. Everything else passes, in order.

    Put it inside the auth middleware, so that a logged-in user is counted as one.
    """

    async def identify(self, scope: Scope, settings: Settings) -> Identity:
        """Who is at the other end of a connection; a user that is not loaded yet is loaded in a thread."""
        return await aidentify(scope, settings)
