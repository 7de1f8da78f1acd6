"""The check that code which serves an open WebSocket makes before it does what a message asks for.

Rules:
- True means limited: the message is not handled. The connection stays open.
- Each call counts: a connection has many messages.
- A mistake in the arguments is a `ConfigurationError` on the first call, never a check that lets everything through.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from ratelimit import Decision, Identity, Limiter
from ratelimit.asgi import denial_frame, scope_facts
from ratelimit.guard import Attributes
from ratelimit.kept import kept_guard
from ratelimit.plan import RuleLike
from ratelimit.wire import may_be_gone
from ratelimit_asgi.caller import User, aidentify, checked_user
from ratelimit_asgi.routes import own_group

_log = logging.getLogger("ratelimit.asgi")


async def check_ws_rate_limit(
    websocket: WebSocket,
    rule: RuleLike | None = None,
    *,
    rate: RuleLike | Callable[[Any], RuleLike | None] | None = None,
    key: str | Callable[[Any], str | Identity] = "user_or_ip",
    group: str | None = None,
    cost: int | Callable[[Any], int] = 1,
    attributes: Attributes | None = None,
    user: User | None = None,
    send_message: bool = True,
    limiter: Limiter | None = None,
) -> bool:
    """True if the caller is over the limit; it has been sent the denial frame then.

    `rule` is a category, its budget shared wherever that is named, or a `Rule` or `Policy`; `rate` (instead) gives this
    route, or `group`, a budget of its own. `key`, `cost`, `attributes` and a callable `rate` get the WebSocket, and so does
    `user`, which may be a coroutine function. `send_message=False` sends nothing. One store round trip.
    """
    guard = kept_guard(
        rule, rate=rate, key=key, group=group, cost=cost, attributes=attributes, facts=scope_facts, protocol="websocket",
        limiter=limiter,
    )  # fmt: skip
    settings = guard.limiter.settings
    if settings.disable:
        return False
    identity = await aidentify(checked_user(user), websocket, websocket.scope, settings)
    own = guard.group is None and guard.counts_apart
    decision = await guard.acheck(identity, own_group(websocket.scope) if own else "", websocket)
    if send_message and not decision.allowed:
        await send_denial(websocket, decision)
    return not decision.allowed


async def send_denial(websocket: WebSocket, decision: Decision) -> None:
    """Sends the denial frame. A socket that has gone meanwhile is no error: the caller is limited either way."""
    with may_be_gone(_log, WebSocketDisconnect):
        await websocket.send_text(json.dumps(denial_frame(decision)))
