"""A limit on new connections, kept before any consumer is made.

Rules:
- Only `websocket` scopes are looked at; everything else passes untouched.
- A refused connection is never accepted: the client gets HTTP 429 with `Retry-After` where the server can send one
  (`websocket.http.response`), else the 403 that closing before accepting means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ratelimit import Decision, Identity, Limiter, RateLimits
from ratelimit.asgi import Scope, refuse_websocket, scope_answer, scope_facts
from ratelimit.guard import Attributes, Guard
from ratelimit.plan import RuleLike
from ratelimit.websockets import PROTOCOL, App
from ratelimit_channels.caller import aidentify

OWN_GROUP = "websocket:connect"


class WebsocketHandshakeLimit:
    """ASGI middleware: `WS_CONNECT` connections a minute for each caller, or whatever limit is given.

    Put it inside the auth middleware, so that a logged-in user is counted as one. Options as in
    `check_ws_rate_limit`; callables get the scope. A mistake in them is a `ConfigurationError` at once.
    """

    def __init__(
        self,
        app: App,
        rule: RuleLike | None = None,
        *,
        rate: RuleLike | Callable[[Any], RuleLike | None] | None = None,
        key: str | Callable[[Any], str | Identity] = "user_or_ip",
        group: str | None = None,
        cost: int | Callable[[Any], int] = 1,
        attributes: Attributes | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        self.app = app
        rule = RateLimits.WS_CONNECT if rule is None and rate is None else rule
        self.guard = Guard(
            rule,
            rate=rate,
            key=key,
            group=group,
            cost=cost,
            attributes=attributes,
            facts=scope_facts,
            protocol=PROTOCOL,
            limiter=limiter,
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        decision = await self._decide(scope) if scope["type"] == "websocket" else None
        if decision is None or decision.allowed:
            await self.app(scope, receive, send)
        else:
            answer = scope_answer(scope, decision, self.guard.limiter.settings)
            await refuse_websocket(scope, receive, send, answer)

    async def _decide(self, scope: Scope) -> Decision:
        identity = await aidentify(scope, self.guard.limiter.settings)
        return await self.guard.acheck(identity, OWN_GROUP, scope)
