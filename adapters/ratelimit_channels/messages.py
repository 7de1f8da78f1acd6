"""A limit on messages, kept before the consumer sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ratelimit import Identity, Limiter
from ratelimit.guard import Attributes
from ratelimit.plan import RuleLike
from ratelimit.websockets import MessageLimit
from ratelimit_channels.caller import aidentify
from ratelimit_channels.handshake import App


class WebsocketMessageLimit:
    """ASGI middleware: limits what clients send over open connections. A refused message does not reach the consumer; its
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
            identify=aidentify,
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
