"""The check that a consumer makes before it does what a message asks for.

Rules:
- True means limited: the consumer returns. The connection stays open.
- A category has one budget, whatever protocol spends it; a `rate=` has one for each consumer class.
- A mistake in the arguments is a `ConfigurationError` on the first call, never a check that lets everything through.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from channels.consumer import SyncConsumer

from ratelimit import ConfigurationError, Identity, Limiter
from ratelimit.asgi import scope_identity
from ratelimit.guard import Attributes
from ratelimit.kept import kept_guard
from ratelimit.plan import RuleLike
from ratelimit.websockets import PROTOCOL
from ratelimit_channels.caller import Consumer, aidentify, facts_of, is_asynchronous, own_group
from ratelimit_channels.frame import send_denial, send_denial_sync

_guard = partial(kept_guard, facts=facts_of, protocol=PROTOCOL)


async def check_ws_rate_limit(
    consumer: Consumer,
    rule: RuleLike | None = None,
    *,
    rate: RuleLike | Callable[[Any], RuleLike | None] | None = None,
    key: str | Callable[[Any], str | Identity] = "user_or_ip",
    group: str | None = None,
    cost: int | Callable[[Any], int] = 1,
    attributes: Attributes | None = None,
    send_message: bool = True,
    limiter: Limiter | None = None,
) -> bool:
    """True if the caller is over the limit; it has been sent the denial frame then.

    `rule` is a category, its budget shared wherever that is named, or a `Rule` or `Policy`; `rate` (instead) gives this
    consumer class, or `group`, a budget of its own. `key` says who counts as one caller: a strategy, or a callable;
    rules say so themselves, and may look at `path` and at what `attributes` tells. `rate`, `key`, `cost` and `attributes`
    may be callables of the consumer. `send_message=False` sends nothing. One store round trip.

    Raises `ConfigurationError` for arguments that are not valid, and in a synchronous consumer.
    """
    if isinstance(consumer, SyncConsumer):
        raise _wrong_check(consumer, "synchronous", "check_ws_rate_limit_sync(...)")
    guard = _guard(rule, rate=rate, key=key, group=group, cost=cost, attributes=attributes, limiter=limiter)
    identity = await aidentify(consumer.scope, guard.limiter.settings)
    decision = await guard.acheck(identity, own_group(consumer), consumer)
    if send_message and not decision.allowed:
        await send_denial(consumer, decision)
    return not decision.allowed


def check_ws_rate_limit_sync(
    consumer: Consumer,
    rule: RuleLike | None = None,
    *,
    rate: RuleLike | Callable[[Any], RuleLike | None] | None = None,
    key: str | Callable[[Any], str | Identity] = "user_or_ip",
    group: str | None = None,
    cost: int | Callable[[Any], int] = 1,
    attributes: Attributes | None = None,
    send_message: bool = True,
    limiter: Limiter | None = None,
) -> bool:
    """`check_ws_rate_limit` for a `WebsocketConsumer`, whose methods run in a thread."""
    if is_asynchronous(consumer):
        raise _wrong_check(consumer, "asynchronous", "await check_ws_rate_limit(...)")
    guard = _guard(rule, rate=rate, key=key, group=group, cost=cost, attributes=attributes, limiter=limiter)
    identity = scope_identity(consumer.scope, guard.limiter.settings)
    decision = guard.check(identity, own_group(consumer), consumer)
    if send_message and not decision.allowed:
        send_denial_sync(consumer, decision)
    return not decision.allowed


def _wrong_check(consumer: object, kind: str, right: str) -> ConfigurationError:
    return ConfigurationError(f"{type(consumer).__qualname__} is {kind}: use {right}")
