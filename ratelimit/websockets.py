"""A cap on the WebSocket connections that a caller may have open at once, for any ASGI application.

Rules:
- Only `websocket` scopes are looked at; everything else passes untouched.
- A place is held from the handshake until the application has ended, however that comes.
- A refused connection is never accepted: see `refuse_websocket`.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, Final

from ratelimit.asgi import Scope, refuse_websocket, scope_answer, scope_identity
from ratelimit.connections import DEFAULT_LEASE, ConnectionCap, Most
from ratelimit.engine import Limiter
from ratelimit.errors import ConfigurationError
from ratelimit.guard import caller_named
from ratelimit.identity import Identity
from ratelimit.settings import Settings
from ratelimit.wire import Wire

PROTOCOL: Final = "websocket"
"""What the log calls the protocol."""

# Loose on purpose: frameworks that type ASGI do so in ways that do not fit one another.
App = Callable[..., Any]


class ConnectionLimit:
    """ASGI middleware: at most so many connections at once for each caller, in all processes that share the store.

    Adapters derive their `WebsocketConnectionLimit` from it, and say there who calls: see `identify`.
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
        """`most`, `name`, `lease` and `on_outage` are those of `ConnectionCap`, which is at `cap`; `key` may be a callable of
        the scope. `close_lost` closes a connection (code 4029) whose place was lost, because its process stood still for
        longer than a lease and others have taken all places. A mistake in them is a `ConfigurationError` at once.
        """
        self.app = app
        check_plain(("key", key))
        self._key_of = key if callable(key) else None
        self._close_lost = close_lost
        self.cap = ConnectionCap(
            most,
            name=name,
            key="user_or_ip" if callable(key) else key,
            lease=lease,
            on_outage=on_outage,
            protocol=PROTOCOL,
            limiter=limiter,
        )

    async def identify(self, scope: Scope, settings: Settings) -> Identity:
        """Who is at the other end of a connection."""
        return scope_identity(scope, settings)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            await self.app(scope, receive, send)
            return
        wire, cap = Wire(send), self.cap
        identity = await self.identify(scope, cap.limiter.settings)
        if self._key_of is not None:
            identity = caller_named(self._key_of(scope), identity)
        async with cap.hold(identity, wire.close_soon if self._close_lost else None) as decision:
            if decision.allowed:
                try:
                    await self.app(scope, receive, wire.send if self._close_lost else send)
                finally:
                    await wire.aclose()
                return
        answer = scope_answer(scope, decision, cap.limiter.settings)
        await refuse_websocket(scope, receive, send, answer)


def check_plain(*callables: tuple[str, object]) -> None:
    """Raises `ConfigurationError` for an option, told by its name, that would have to be awaited."""
    for what, given in callables:
        if iscoroutinefunction(given):
            raise ConfigurationError(f"{what}={given!r} is a coroutine function; it must be a plain one")
