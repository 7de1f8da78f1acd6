"""A cap on connections and a limit on messages, for any ASGI application that speaks WebSocket. Adapters say who calls.

Rules:
- A place is held from the handshake until the application ends, however that comes. A refused connection is never accepted:
  see `refuse_websocket`.
- Messages are judged one by one, in order. One that is refused does not reach the application; nothing else is changed.
- Whoever is cancelled while it waits for a message loses none and counts none twice: the next one to wait gets it. Of several
  that wait at once, each gets another message.
"""

from __future__ import annotations

from asyncio import Lock, Task, create_task, wait
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final

from ratelimit.asgi import (
    WS_CLOSE_RATE_LIMITED,
    ASGIApp,
    Message,
    Receive,
    Scope,
    Send,
    refuse_websocket,
    scope_answer,
    scope_facts,
)
from ratelimit.connections import ConnectionCap, Most
from ratelimit.decision import Decision
from ratelimit.engine import Limiter, get_limiter
from ratelimit.errors import ConfigurationError
from ratelimit.guard import Attributes, Guard, caller_named
from ratelimit.identity import Identity
from ratelimit.plan import RuleLike
from ratelimit.settings import Settings
from ratelimit.wire import Wire, ended

PROTOCOL: Final = "websocket"
"""What the log calls the protocol."""
OWN_GROUP: Final = "websocket:message"
_MAX_GUARDS: Final = 64

Identify = Callable[[Scope, Settings], Awaitable[Identity]]
"""Who is at the other end of a connection."""
RuleOf = Callable[[Message], "RuleLike | None"]


class ConnectionLimit:
    """A cap on connections; see the adapters' `WebsocketConnectionLimit`."""

    def __init__(
        self,
        most: Most,
        *,
        name: str,
        key: str | Callable[[Scope], str | Identity],
        lease: int,
        on_outage: str | None,
        close_lost: bool,
        limiter: Limiter | None,
        identify: Identify,
    ) -> None:
        self._identify, self._close_lost = identify, close_lost
        _check_plain(("key", key))
        self._key_of = key if callable(key) else None
        self.cap = ConnectionCap(
            most,
            name=name,
            key="user_or_ip" if callable(key) else key,
            lease=lease,
            on_outage=on_outage,
            protocol=PROTOCOL,
            limiter=limiter,
        )

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs `app` for a connection that has a place, or refuses the connection."""
        if scope["type"] != "websocket":
            return await app(scope, receive, send)
        wire, cap = Wire(send), self.cap
        identity = await self._identify(scope, cap.limiter.settings)
        if self._key_of is not None:
            identity = caller_named(self._key_of(scope), identity)
        async with cap.hold(identity, wire.close_soon if self._close_lost else None) as decision:
            if decision.allowed:
                try:
                    return await app(scope, receive, wire.send if self._close_lost else send)
                finally:
                    await wire.aclose()
        answer = scope_answer(scope, decision, cap.limiter.settings)
        return await refuse_websocket(scope, receive, send, answer)


class MessageLimit:
    """What messages are counted as, and what becomes of refused ones; see the adapters' `WebsocketMessageLimit`."""

    def __init__(
        self,
        rule: RuleLike | RuleOf | None,
        rate: RuleLike | None,
        *,
        identify: Identify,
        key: str | Callable[[Scope], str | Identity],
        group: str | None,
        cost: int | Callable[[Message], int],
        attributes: Attributes | None,
        exempt: Callable[[Message], bool] | None,
        send_message: bool,
        close_after: int | None,
        limiter: Limiter | None,
    ) -> None:
        _check_plain(("rule", rule), ("key", key), ("cost", cost), ("attributes", attributes), ("exempt", exempt))
        if exempt is not None and not callable(exempt):
            raise ConfigurationError(f"exempt={exempt!r} is not a function of a message")
        if callable(rate):
            raise ConfigurationError(f"rate={rate!r} is a callable; give the callable as the rule")
        if close_after is not None and (type(close_after) is not int or close_after < 1):
            raise ConfigurationError(f"close_after {close_after!r} is not a whole number of at least 1")
        self.identify, self.exempt = identify, exempt
        self.send_message, self.close_after = send_message, close_after
        self._rule_of: RuleOf | None = rule if callable(rule) else None
        self._limiter = limiter
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

    @property
    def limiter(self) -> Limiter:
        """The limiter this was given, else the process's one."""
        return self._limiter or get_limiter()

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs `app` for one connection."""
        if scope["type"] != "websocket":
            return await app(scope, receive, send)
        inbox = Inbox(self, scope, receive, Wire(send))
        try:
            return await app(scope, inbox.receive, inbox.wire.send)
        finally:
            await inbox.aclose()

    async def decide(self, scope: Scope, message: Message) -> Decision | None:
        """The decision on a message; None for one that is not counted."""
        if self.exempt is not None and self.exempt(message):
            return None
        guard = self._only
        if self._rule_of is not None:
            rule = self._rule_of(message)
            if rule is None:
                return None
            guard = self._guard_of(rule)
        identity = await self.identify(scope, self.limiter.settings)
        return await guard.acheck(identity, OWN_GROUP, scope, message)

    def _guard_of(self, rule: RuleLike) -> Guard:
        guard = self._guards.get(rule)
        if guard is None:
            if len(self._guards) >= _MAX_GUARDS:
                self._guards.clear()
            guard = self._guards[rule] = self._guard(rule)
        return guard


class Inbox:
    """The receiving side of one connection."""

    def __init__(self, limit: MessageLimit, scope: Scope, receive: Receive, wire: Wire) -> None:
        self.wire = wire
        self._limit, self._scope, self._receive = limit, scope, receive
        self._step: Task[Message | None] | None = None
        self._turn = Lock()
        self._refused = 0  # in a row

    async def receive(self) -> Message:
        """The next message that is not refused."""
        async with self._turn:
            return await self._next()

    async def _next(self) -> Message:
        while True:
            if self._step is None:
                message = await self._receive()
                if message["type"] != "websocket.receive":
                    return message
                if self.wire.closed:
                    continue
                self._step = create_task(self._judged(message))
            await wait([self._step])  # which leaves it alone when it is cancelled itself
            step, self._step = self._step, None
            judged = step.result()
            if judged is not None:
                return judged

    async def aclose(self) -> None:
        """Ends what is under way."""
        if self._step is not None:
            await ended(self._step)

    async def _judged(self, message: Message) -> Message | None:
        decision = await self._limit.decide(self._scope, message)
        if decision is None:
            return message
        if decision.allowed:
            self._refused = 0
            return message
        self._refused += 1
        if self._limit.send_message:
            await self.wire.tell(decision)
        if self._refused == self._limit.close_after:
            await self.wire.close()
            if self.wire.closed:  # not if the application has closed before
                return {"type": "websocket.disconnect", "code": WS_CLOSE_RATE_LIMITED, "reason": ""}
        return None


def _of_scope(given: Any) -> Any:
    """What a guard that is given scope and message asks the scope for; a constant as it is."""
    return (lambda scope, message: given(scope)) if callable(given) else given


def _of_message(given: Any) -> Any:
    return (lambda scope, message: given(message)) if callable(given) else given


def _check_plain(*callables: tuple[str, object]) -> None:
    for what, given in callables:
        if iscoroutinefunction(given):
            raise ConfigurationError(f"{what}={given!r} is a coroutine function; it must be a plain one")
