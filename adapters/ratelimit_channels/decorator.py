"""A limit on a consumer's method, kept before it runs.

Rules:
- A denied message gets the denial frame, and the method is not run. A denied `connect` is closed before it is accepted.
- A `rate=` has a budget for each consumer class and method: what subclasses inherit counts for them apart.
- The limit is checked when the class is made: a mistake is an error then, not at the first message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction, isfunction
from typing import Any, Final, TypeVar

from channels.generic.websocket import AsyncWebsocketConsumer, WebsocketConsumer

from ratelimit import ConfigurationError, Identity, Limiter
from ratelimit.asgi import WS_CLOSE_RATE_LIMITED, scope_identity
from ratelimit.guard import Attributes, Guard
from ratelimit.plan import RuleLike
from ratelimit.websockets import PROTOCOL
from ratelimit_channels.caller import aidentify, facts_of, is_asynchronous, own_group
from ratelimit_channels.frame import send_denial, send_denial_sync

F = TypeVar("F", bound=Callable[..., Any])

_HANDSHAKES: Final = ("connect", "websocket_connect")
_FAREWELLS: Final = ("disconnect", "websocket_disconnect")


def ws_ratelimit(
    rule: RuleLike | None = None,
    *,
    rate: RuleLike | Callable[..., RuleLike | None] | None = None,
    key: str | Callable[..., str | Identity] = "user_or_ip",
    group: str | None = None,
    cost: int | Callable[..., int] = 1,
    attributes: Attributes | None = None,
    send_message: bool = True,
    limiter: Limiter | None = None,
) -> Callable[[F], F]:
    """Limits a method of a consumer, sync or async: `receive`, `receive_json`, `connect`, or a handler such as `chat_message`.

    Options as in `check_ws_rate_limit`; callables get what the method gets, the consumer first.
    """
    guard = Guard(
        rule,
        rate=rate,
        key=key,
        group=group,
        cost=cost,
        attributes=attributes,
        facts=facts_of,
        protocol=PROTOCOL,
        limiter=limiter,
    )

    def decorate(method: F) -> F:
        if not isfunction(method):
            raise ConfigurationError(f"ws_ratelimit: {method!r} is not a method; decorate one of a consumer's")
        if method.__name__ in _FAREWELLS:
            raise ConfigurationError(f"ws_ratelimit: {method.__qualname__} must run whenever a connection ends")
        limited = _async if iscoroutinefunction(method) else _sync
        return limited(method, guard, send_message)  # type: ignore[return-value]

    return decorate


def _async(method: Any, guard: Guard, send_message: bool) -> Callable[..., Any]:
    @wraps(method)
    async def limited(self: Any, *args: Any, **kwargs: Any) -> Any:
        identity = await aidentify(self.scope, guard.limiter.settings)
        decision = await guard.acheck(identity, _group(self, method), self, *args, **kwargs)
        if decision.allowed:
            return await method(self, *args, **kwargs)
        if method.__name__ in _HANDSHAKES:
            await _closing(self)
        elif send_message:
            await send_denial(self, decision)
        return None

    return limited


def _sync(method: Any, guard: Guard, send_message: bool) -> Callable[..., Any]:
    @wraps(method)
    def limited(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_asynchronous(self):
            raise ConfigurationError(
                f"ws_ratelimit: {type(self).__qualname__} is asynchronous, and {method.__name__} is not: write async def"
            )
        identity = scope_identity(self.scope, guard.limiter.settings)
        decision = guard.check(identity, _group(self, method), self, *args, **kwargs)
        if decision.allowed:
            return method(self, *args, **kwargs)
        if method.__name__ in _HANDSHAKES:
            _closing(self)
        elif send_message:
            send_denial_sync(self, decision)
        return None

    return limited


def _closing(consumer: Any) -> Any:
    """The consumer's own call that closes before it has accepted."""
    if isinstance(consumer, (AsyncWebsocketConsumer, WebsocketConsumer)):
        return consumer.close(code=WS_CLOSE_RATE_LIMITED)
    return consumer.send({"type": "websocket.close", "code": WS_CLOSE_RATE_LIMITED})


def _group(consumer: Any, method: Any) -> str:
    return f"{own_group(consumer)}.{method.__name__}"
