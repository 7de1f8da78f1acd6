"""WebSocket connections and messages under limits, in Starlette, FastAPI, Litestar and any other ASGI application.

Rules:
- Only `websocket` scopes are looked at; everything else passes untouched.
- A place is held from the handshake until the application has ended, however that comes.
- A refused connection is never accepted: the client gets HTTP 429 where the server can send one, else 403.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ratelimit import Identity, Limiter
from ratelimit.asgi import Scope, scope_identity
from ratelimit.connections import DEFAULT_LEASE, Most
from ratelimit.guard import Attributes
from ratelimit.plan import RuleLike
from ratelimit.settings import Settings
from ratelimit.websockets import ConnectionLimit, MessageLimit

# Loose on purpose: frameworks that type ASGI do so in ways that do not fit one another.
App = Callable[..., Any]


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
            identify=_identify,
        )
        self.cap = self._limit.cap

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._limit.run(self.app, scope, receive, send)


class WebsocketMessageLimit:
    """ASGI middleware: limits what clients send over open connections. A refused message does not reach the application; its
    sender gets the denial frame. Everything else passes, in order.

    `rule` is a category, a `Rule` or a `Policy`, or a callable that gives one of these for a message, or None for a message
    that is not counted; `rate` (instead) is a budget of its own. `cost` may be a callable of the message, and `exempt` one
    that is true for what is not counted. `key` and `attributes` may be callables of the scope: nobody may choose a budget by
    what it writes. A message is the ASGI one: `{"type": "websocket.receive", "text": ...}` or `"bytes"`.

    `send_message=False` refuses without a word; `close_after` closes the connection (code 4029) after so many refusals in a
    row. A mistake is a `ConfigurationError` at once.
    """

    def __init__(
        self,
        app: App,
        rule: RuleLike | Callable[[Any], RuleLike | None] | None = None,
        *,
        rate: RuleLike | None = None,
        key: str | Callable[[Any], str | Identity] = "user_or_ip",
        group: str | None = None,
        cost: int | Callable[[Any], int] = 1,
        attributes: Attributes | None = None,
        exempt: Callable[[Any], bool] | None = None,
        send_message: bool = True,
        close_after: int | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        self.app = app
        self._limit = MessageLimit(
            rule,
            rate,
            identify=_identify,
            key=key,
            group=group,
            cost=cost,
            attributes=attributes,
            exempt=exempt,
            send_message=send_message,
            close_after=close_after,
            limiter=limiter,
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._limit.run(self.app, scope, receive, send)


async def _identify(scope: Scope, settings: Settings) -> Identity:
    return scope_identity(scope, settings)
