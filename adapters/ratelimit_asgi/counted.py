"""What is known on a connection of the limits it met: the decision, the caller it counted for, what was spent.

Rules:
- `scope["limit_decision"]` is the decision that constrains the connection most so far, `scope["limit_key"]` the caller whose
  budget that is. Both are missing as long as nothing was counted.
- One limit is counted once, however many places name it (`ratelimit.spent`).
- Code between a middleware and an endpoint may copy the scope: what is to be shown as headers is kept in a list, which
  all copies have in common.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from ratelimit import Category, Decision, Identity, Limiter, Rate
from ratelimit.asgi import STARTS, Message, Scope, Send, headed
from ratelimit.decision import together
from ratelimit.guard import Guard
from ratelimit.headers import raw_headers
from ratelimit.spent import SPENT, note_spent, spent

_SHOWN: Final = "ratelimit.shown"
"""Where the middleware looks, when the response starts, for what to tell the client."""


class Limit:
    """A guard as connections meet it: counted once on each, and noted there."""

    __slots__ = ("_cost", "_key", "_place", "guard", "rule")

    def __init__(self, guard: Guard, place: str = "") -> None:
        """`place` is where a rate counts that a function gives."""
        self.guard = guard
        self._place = place
        rule = guard.rule if guard.rate is None else guard.rate
        asks = callable(rule) or callable(guard.key) or callable(guard.cost) or guard.attributes is not None
        placed = guard.group is not None or not guard.counts_apart
        # A limit that asks nobody, as most do, is asked for without the steps in between.
        self.rule = rule if isinstance(rule, (Category, Rate)) and placed and not asks else None
        self._key: Any = guard.key
        self._cost: Any = guard.cost

    async def acheck(self, scope: Scope, identity: Identity, subject: object) -> Decision:
        """The decision on a connection; `subject` is what callables are given."""
        decision = spent(scope, self.guard, identity, subject) if SPENT in scope else None
        if decision is None:
            decision = await self.ask(identity, subject)
            self.note(scope, identity, decision, subject)
        return decision

    def ask(self, identity: Identity, subject: object) -> Awaitable[Decision]:
        """The limiter's decision, whatever was counted before. To be noted."""
        guard, rule = self.guard, self.rule
        if rule is None:
            return guard.acheck(identity, self._place, subject)
        key, cost, group = self._key, self._cost, guard.group
        return guard.limiter.acheck(rule, identity, key=key, cost=cost, group=group, protocol=guard.protocol)

    def check(self, scope: Scope, identity: Identity, subject: object) -> Decision:
        """`acheck` where there is no event loop, or nothing to wait for."""
        decision = spent(scope, self.guard, identity, subject) if SPENT in scope else None
        if decision is None:
            if self.rule is None:
                decision = self.guard.check(identity, self._place, subject)
            else:
                decision = self.decide(self.guard.limiter, identity)
            self.note(scope, identity, decision, subject)
        return decision

    def decide(self, limiter: Limiter, identity: Identity) -> Decision:
        """What `limiter` says to a limit that asks nobody."""
        guard, rule = self.guard, self.rule
        assert rule is not None
        return limiter.check(rule, identity, key=self._key, cost=self._cost, group=guard.group, protocol=guard.protocol)

    def note(self, scope: Scope, identity: Identity, decision: Decision, subject: object) -> None:
        """Has the connection know of what was counted, if anything was."""
        if self.rule is None and not decision.counted:
            return
        note_spent(scope, self.guard, identity, decision, subject)
        earlier = scope.get("limit_decision")
        if earlier is None:
            # The key that a plain limit counts by is known without working out the figures.
            key = decision.key if self.rule is None else identity.key(self._key)
        else:
            decision = together((earlier, decision))
            key = decision.key
        scope["limit_decision"] = decision
        scope["limit_key"] = key
        shown = scope.get(_SHOWN)
        if shown is not None:
            shown.append(decision)


def showing(scope: Scope, send: Send, style: str) -> Send:
    """A `send` that tells the client, when the response starts, what was counted until then."""
    shown: list[Decision] | None = scope.get(_SHOWN)
    if shown is not None:  # a middleware further out does
        return send
    earlier = scope.get("limit_decision")
    shown = scope[_SHOWN] = [] if earlier is None else [earlier]

    def send_with_limits(message: Message) -> Awaitable[None]:
        if message["type"] in STARTS and shown:
            message = headed(message, raw_headers(shown[-1], style))
        return send(message)

    return send_with_limits


def is_shown(scope: Scope) -> bool:
    """Whether a middleware adds the limit headers."""
    return _SHOWN in scope
