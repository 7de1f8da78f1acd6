"""What a request has spent already: a middleware and a decorator that name the same rule count it once.

Rules:
- It is the same rule if both name the same category, `Rule` or `Policy`, or the same rate in the same group, for the same
  caller by the same strategy. A limit that asks a callable is counted wherever it stands.
- What a place has spent stands in once for each of a few other places: one that is asked again, by the next alias of a
  GraphQL document, say, counts again.
- A place that costs more than what was spent counts for itself.
- What was spent is noted in what stands for the request: an ASGI scope, a WSGI environ.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from ratelimit.categories import Category
from ratelimit.decision import Decision
from ratelimit.guard import Guard
from ratelimit.identity import Identity
from ratelimit.rates import Rate

_PLACE: Final = "ratelimit.spent"
_LAYERS: Final = 8
"""Places that a request passes one after another. More of them is not layers but a loop that makes its limits anew."""


class _Spending:
    """What one guard spent, and the guards that it stood in for. Holding them, and through them their rules, keeps what
    they are told apart by from becoming another's."""

    __slots__ = ("caller", "cost", "decision", "seen_by")

    def __init__(self, guard: Guard, caller: object, decision: Decision) -> None:
        self.caller = caller
        self.cost: Any = guard.cost
        self.decision = decision
        self.seen_by = [guard]

    def stands_in_for(self, guard: Guard) -> bool:
        """Whether `guard` may take this for what it would spend; true once."""
        if self.cost < guard.cost or guard in self.seen_by or len(self.seen_by) == _LAYERS:
            return False
        self.seen_by.append(guard)
        return True


def note_spent(request: MutableMapping[str, Any], guard: Guard, identity: Identity, decision: Decision) -> None:
    """Notes what `guard` spent for a request."""
    place = _place(guard)
    if place is not None:
        spendings = request.setdefault(_PLACE, {}).setdefault(place, [])
        spendings.append(_Spending(guard, _counted(guard, identity), decision))
        del spendings[:-_LAYERS]


def spent(request: MutableMapping[str, Any], guard: Guard, identity: Identity) -> Decision | None:
    """The decision on what was spent for the request that `guard` is asked about, None if it has yet to count it. Asked
    again, it gives None, unless more was spent."""
    known = request.get(_PLACE)
    if not known:
        return None
    place = _place(guard)
    if place not in known:
        return None
    caller = _counted(guard, identity)
    for spending in known[place]:
        if spending.caller == caller and spending.stands_in_for(guard):
            decision: Decision = spending.decision
            return decision
    return None


def _place(guard: Guard) -> object:
    """What two guards have in common that count the same; None for one that asks a callable, or counts in a group that it
    is told when it is asked."""
    rule = guard.rule if guard.rate is None else guard.rate
    own = guard.rate is not None or isinstance(rule, Rate)
    if callable(guard.key) or callable(rule) or guard.attributes is not None or type(guard.cost) is not int:
        return None
    if own and guard.group is None:
        return None
    limiter = id(guard.limiter)
    if isinstance(rule, (Category, Rate)):
        return limiter, rule, guard.group, guard.key
    # Rules look at what the place knows of the call: they mean the same only where that is the same.
    return limiter, rule if isinstance(rule, str) else id(rule), guard.group, guard.facts, guard.protocol


def _counted(guard: Guard, identity: Identity) -> object:
    """What of a caller makes a difference to what is counted."""
    rule = guard.rule if guard.rate is None else guard.rate
    key: Any = guard.key
    if isinstance(rule, Rate):
        return identity.key(key)
    if isinstance(rule, Category):
        return identity.key(key), identity.user is None, identity.superuser, identity.capped
    return identity
