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
from typing import Final

from ratelimit import Decision, Identity
from ratelimit.asgi import STARTS, Message, Scope, Send, headed
from ratelimit.decision import together
from ratelimit.guard import Guard
from ratelimit.headers import raw_headers
from ratelimit.spent import SPENT, note_spent, spent

_SHOWN: Final = "ratelimit.shown"
"""Where the middleware looks, when the response starts, for what to tell the client."""


class Limit:
    """A guard as connections meet it: counted once on each, and noted there.

    `at_hand` is `Guard.at_hand`: the decision of `ask`, if there is nothing to wait for. The middleware, which every request
    passes, asks and notes by itself what `acheck` would: a coroutine around it would only cost.
    """

    __slots__ = ("_constant", "_guard", "_place", "at_hand")

    def __init__(self, guard: Guard, place: str = "") -> None:
        """`place` is where a rate counts that a function gives."""
        self._guard = guard
        self.at_hand = guard.at_hand
        self._place = place
        constant = guard.constant
        # What can be asked without the place, too.
        self._constant = None if constant is None or constant[3] == "" else constant

    async def acheck(self, scope: Scope, identity: Identity, subject: object) -> Decision:
        """The decision on a connection; `subject` is what callables are given."""
        decision = spent(scope, self._guard, identity, (subject,)) if SPENT in scope else None
        if decision is None:
            at_hand = self.at_hand(identity)
            decision = await self.ask(identity, subject) if at_hand is None else at_hand
            self.note(scope, identity, decision, subject)
        return decision

    def ask(self, identity: Identity, subject: object) -> Awaitable[Decision]:
        """The limiter's decision, whatever was counted before."""
        guard = self._guard
        if self._constant is None:
            return guard.acheck(identity, self._place, subject)
        rule, key, cost, group = self._constant
        return guard.limiter.acheck(rule, identity, key=key, cost=cost, group=group, protocol=guard.protocol)

    def check(self, scope: Scope, identity: Identity, subject: object) -> Decision:
        """`acheck` where there is no event loop, or nothing to wait for."""
        decision = spent(scope, self._guard, identity, (subject,)) if SPENT in scope else None
        if decision is None:
            decision = self._guard.check(identity, self._place, subject)
            self.note(scope, identity, decision, subject)
        return decision

    def note(self, scope: Scope, identity: Identity, decision: Decision, subject: object) -> None:
        """Has the connection know of what was counted, if anything was."""
        constant = self._constant
        if constant is None and not decision.counted:
            return
        note_spent(scope, self._guard, identity, decision, (subject,))
        earlier = scope.get("limit_decision")
        if earlier is None:
            # The key that a constant limit counts by is known without working out the figures.
            scope["limit_key"] = decision.key if constant is None else identity.key(self._guard.key)
        else:
            decision = together((earlier, decision))
            scope["limit_key"] = decision.key
        scope["limit_decision"] = decision
        if _SHOWN in scope:
            scope[_SHOWN].append(decision)


def showing(scope: Scope, send: Send, style: str) -> Send:
    """A `send` that tells the client, when the response starts, what was counted until then."""
    if _SHOWN in scope:  # a middleware further out does
        return send
    earlier = scope.get("limit_decision")
    shown: list[Decision] = [] if earlier is None else [earlier]
    scope[_SHOWN] = shown

    def send_with_limits(message: Message) -> Awaitable[None]:
        if message["type"] in STARTS and shown:
            message = headed(message, raw_headers(shown[-1], style))
        return send(message)

    return send_with_limits


def is_shown(scope: Scope) -> bool:
    """Whether a middleware adds the limit headers."""
    return _SHOWN in scope
