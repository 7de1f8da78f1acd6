"""What a request has spent already: a middleware and a decorator that name the same rule count it once.

Rules:
- It is the same rule if both name the same category, `Rule` or `Policy`, or the same rate in the same group, for the same
  caller by the same strategy. A limit that asks a callable is counted wherever it stands.
- A place that costs more than what was spent counts for itself.
- What was spent is noted in what stands for the request: an ASGI scope, a WSGI environ.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from ratelimit.decision import Decision
from ratelimit.guard import Guard
from ratelimit.identity import Identity
from ratelimit.rates import Rate
from ratelimit.rules import Policy, Rule

_PLACE: Final = "ratelimit.spent"


def note_spent(request: MutableMapping[str, Any], guard: Guard, identity: Identity, decision: Decision) -> None:
    """Notes what `guard` spent for a request."""
    place = _place(guard)
    if place is not None and type(guard.cost) is int:
        request.setdefault(_PLACE, {}).setdefault(place, []).append((identity, guard.cost, decision))


def spent(request: MutableMapping[str, Any], guard: Guard, identity: Identity) -> Decision | None:
    """The decision on what was spent for the request that `guard` is asked about, None if it has yet to count it."""
    known = request.get(_PLACE)
    if not known or type(guard.cost) is not int:
        return None
    for caller, cost, decision in known.get(_place(guard), ()):
        if caller == identity and cost >= guard.cost:
            found: Decision = decision
            return found
    return None


def _place(guard: Guard) -> object:
    """What two guards have in common that count the same; None for one that asks a callable."""
    rule = guard.rule if guard.rate is None else guard.rate
    if callable(guard.key) or callable(rule) or guard.attributes is not None:
        return None
    if isinstance(rule, (Rule, Policy)):
        return id(rule), guard.group
    if isinstance(rule, Rate):
        return (rule, guard.group, guard.key) if guard.group else None
    return str(rule), guard.group, guard.key
