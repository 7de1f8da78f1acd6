"""What is known on a connection of the limits it met: the decision, the caller it counted for, what was spent.

Rules:
- `scope["limit_decision"]` is the decision that constrains the connection most so far, `scope["limit_key"]` the caller whose
  budget that is. Both are missing as long as nothing was counted.
- One limit is counted once, however many places name it (`ratelimit.spent`).
- Code between a middleware and an endpoint may copy the scope: what is to be shown as headers is kept in a list, which
  all copies have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ratelimit import Category, Decision, Identity, Rate
from ratelimit.asgi import Scope, Send, with_later_headers
from ratelimit.decision import Part
from ratelimit.guard import Guard
from ratelimit.headers import raw_headers
from ratelimit.spent import note_spent, spent

_SHOWN: Final = "ratelimit.shown"
"""Where the middleware looks, when the response starts, for what to tell the client."""


class Limit:
    """A guard as connections meet it: counted once on each, and noted there."""

    __slots__ = ("_key", "_rule", "guard")

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        rule = guard.rule if guard.rate is None else guard.rate
        plain = isinstance(rule, (Category, Rate)) and guard.attributes is None and type(guard.cost) is int
        # A limit that asks nobody, as most do, is asked for without the steps in between.
        self._rule = (
            rule if plain and isinstance(guard.key, str) and (guard.group or isinstance(rule, Category)) else None
        )
        self._key = guard.key if isinstance(guard.key, str) else ""

    async def acheck(self, scope: Scope, identity: Identity, group: str, subject: object) -> Decision:
        """The decision on a connection; `group` is where a rate without one counts, `subject` what callables are given."""
        known = spent(scope, self.guard, identity)
        if known is not None:
            return known
        guard, rule = self.guard, self._rule
        if rule is None:
            decision = await guard.acheck(identity, group, subject)
            self.note(scope, identity, decision)
            return decision
        decision = await guard.limiter.acheck(
            rule,  # type: ignore[arg-type]
            identity,
            key=self._key,
            cost=guard.cost,  # type: ignore[arg-type]
            group=guard.group,
            protocol=guard.protocol,
        )
        self.note(scope, identity, decision)
        return decision

    def check(self, scope: Scope, identity: Identity, group: str, subject: object) -> Decision:
        """`acheck` where there is no event loop."""
        decision = spent(scope, self.guard, identity)
        if decision is None:
            decision = self.guard.check(identity, group, subject)
            self.note(scope, identity, decision)
        return decision

    def note(self, scope: Scope, identity: Identity, decision: Decision) -> None:
        """Has the connection know of what was counted, if anything was."""
        if not decision.counted:
            return
        note_spent(scope, self.guard, identity, decision)
        earlier = scope.get("limit_decision")
        if earlier is None:
            # The key that a plain limit counts by is known without working out the figures.
            key = decision.key if self._rule is None else identity.key(self._key)
        else:
            decision = together(earlier, decision)
            key = decision.key
        scope["limit_decision"] = decision
        scope["limit_key"] = key
        shown = scope.get(_SHOWN)
        if shown is not None:
            shown.append(decision)


def together(*decisions: Decision) -> Decision:
    """Several decisions on one connection as one: the strictest binds."""
    parts: list[Part] = [part for decision in decisions for part in decision.parts]
    return Decision(parts, any(decision.degraded for decision in decisions))


def showing(scope: Scope, send: Send, style: str) -> Send:
    """A `send` that tells the client, when the response starts, what was counted until then."""
    shown: list[Decision] | None = scope.get(_SHOWN)
    if shown is not None:  # a middleware further out does
        return send
    earlier = scope.get("limit_decision")
    shown = scope[_SHOWN] = [] if earlier is None else [earlier]

    def headers() -> Sequence[tuple[bytes, bytes]]:
        return raw_headers(shown[-1], style) if shown else ()

    return with_later_headers(send, headers)


def is_shown(scope: Scope) -> bool:
    """Whether a middleware adds the limit headers."""
    return _SHOWN in scope
