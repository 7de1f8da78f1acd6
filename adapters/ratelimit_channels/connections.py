"""A cap on the connections that a caller may have open at once, kept before any consumer is made.

Rules:
- Only `websocket` scopes are looked at; everything else passes untouched.
- A place is held from the handshake until the consumer has ended, however that comes.
- A refused connection is never accepted: see `WebsocketHandshakeLimit`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ratelimit import Identity, Limiter
from ratelimit.connections import DEFAULT_LEASE, Most
from ratelimit.websockets import ConnectionLimit
from ratelimit_channels.caller import aidentify
from ratelimit_channels.handshake import App


class WebsocketConnectionLimit:
    """ASGI middleware: at most `most` connections at once for each caller, in all processes that share the store.

    Put it inside the auth middleware, so that a logged-in user is counted as one. `most`, `name`, `lease` and `on_outage` are
    those of `ConnectionCap`, which is at `cap`; `key` may be a callable of the scope. `close_lost` closes a connection (code
    4029) whose place was lost, because its process stood still for longer than a lease and others have taken all places.
    A mistake in them is a `ConfigurationError` at once.
    """

    def __init__(
        self,
        app: App,
        most: Most = 5,
        *,
        name: str = "connections",
        key: str | Callable[[Any], str | Identity] = "user_or_ip",
        lease: int = DEFAULT_LEASE,
        on_outage: str | None = None,
        close_lost: bool = False,
        limiter: Limiter | None = None,
    ) -> None:
        self.app = app
        self._limit = ConnectionLimit(
            most,
            name=name,
            key=key,
            lease=lease,
            on_outage=on_outage,
            close_lost=close_lost,
            limiter=limiter,
            identify=aidentify,
        )
        self.cap = self._limit.cap

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._limit.run(self.app, scope, receive, send)
