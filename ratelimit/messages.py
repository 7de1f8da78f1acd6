"""A limit on the messages of open WebSocket connections, for any ASGI application.

Rules:
- Only `websocket` scopes are looked at; everything else passes untouched.
- Messages are judged one by one, in order. One that is refused does not reach the application; nothing else is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ratelimit.asgi import Message, Scope, scope_facts, scope_identity
from ratelimit.decision import Decision
from ratelimit.engine import Limiter
from ratelimit.errors import ConfigurationError
from ratelimit.guard import Attributes, Guard
from ratelimit.identity import Identity
from ratelimit.inbox import Inbox
from ratelimit.plan import RuleLike
from ratelimit.settings import Settings
from ratelimit.websockets import PROTOCOL, App, check_plain
from ratelimit.wire import Wire

OWN_GROUP: Final = "websocket:message"
_MAX_GUARDS: Final = 64


class MessageLimit:
    """ASGI middleware: limits what clients send over open connections. A refused message does not reach the application; its
    sender gets the denial frame. Everything else passes, in order.

    Adapters derive their `WebsocketMessageLimit` from it, and say there who calls: see `identify`.
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
        """`rule` is a category, a `Rule` or a `Policy`, or a callable that gives one of these for a message, or None for a
        message that is not counted; `rate` (instead) is a budget of its own. `cost` may be a callable of the message, and
        `exempt` one that is true for what is not counted. `key` and `attributes` may be callables of the scope: nobody may
        choose a budget by what it writes. A message is the ASGI one: `{"type": "websocket.receive", "text": ...}` or
        `"bytes"`.

        `send_message=False` refuses without a word; `close_after` closes the connection (code 4029) after so many refusals in
        a row. A mistake is a `ConfigurationError` at once.
        """
        self.app = app
        check_plain(("rule", rule), ("key", key), ("cost", cost), ("attributes", attributes), ("exempt", exempt))
        _check(rate, exempt, close_after)
        self._exempt, self._send_message, self._close_after = exempt, send_message, close_after
        self._rule_of = rule if callable(rule) else None
        self._guards: dict[RuleLike, Guard] = {}
        self._guard = partial(
            Guard,
            key=_of_scope(key),
            group=group,
            cost=_of_message(cost),
            attributes=_of_scope(attributes),
            facts=_of_scope(scope_facts),
            protocol=PROTOCOL,
            limiter=limiter,
        )
        # Made in any case: a mistake in the options is told now.
        self._only = self._guard("WS_HEARTBEAT" if callable(rule) else rule, rate=rate)

    async def identify(self, scope: Scope, settings: Settings) -> Identity:
        """Who is at the other end of a connection."""
        return scope_identity(scope, settings)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            await self.app(scope, receive, send)
            return
        wire = Wire(send)
        inbox = Inbox(receive, wire, partial(self._decide, scope), self._send_message, self._close_after)
        try:
            await self.app(scope, inbox.receive, wire.send)
        finally:
            await inbox.aclose()

    async def _decide(self, scope: Scope, message: Message) -> Decision | None:
        """The decision on a message; None for one that is not counted."""
        if self._exempt is not None and self._exempt(message):
            return None
        guard = self._only
        if self._rule_of is not None:
            rule = self._rule_of(message)
            if rule is None:
                return None
            guard = self._guard_of(rule)
        identity = await self.identify(scope, guard.limiter.settings)
        return await guard.acheck(identity, OWN_GROUP, scope, message)

    def _guard_of(self, rule: RuleLike) -> Guard:
        guard = self._guards.get(rule)
        if guard is None:
            if len(self._guards) >= _MAX_GUARDS:
                self._guards.clear()
            guard = self._guards[rule] = self._guard(rule)
        return guard


def _check(rate: object, exempt: object, close_after: object) -> None:
    if exempt is not None and not callable(exempt):
        raise ConfigurationError(f"exempt={exempt!r} is not a function of a message")
    if callable(rate):
        raise ConfigurationError(f"rate={rate!r} is a callable; give the callable as the rule")
    if close_after is not None and (type(close_after) is not int or close_after < 1):
        raise ConfigurationError(f"close_after {close_after!r} is not a whole number of at least 1")


def _of_scope(given: Any) -> Any:
    """What a guard that is given scope and message asks the scope for; a constant as it is."""
    return (lambda scope, message: given(scope)) if callable(given) else given


def _of_message(given: Any) -> Any:
    return (lambda scope, message: given(message)) if callable(given) else given
