"""What a request has spent already: a middleware and a decorator that name the same rule count it once.

Rules:
- It is the same rule if both name the same category, `Rule` or `Policy`, or the same rate in the same group, for the same
  caller by the same strategy. A limit that asks a callable is counted wherever it stands.
- What a place has spent stands in once for each of a few other places: one that is asked again, by the next alias of a
  GraphQL document, say, counts again.
- A place that costs more than what was spent counts for itself, and so does one that costs less than what was refused.
- Rules look at attributes of the caller and of the call: what they know has to be the same in both places.
- What was spent is noted in what stands for the request: an ASGI scope, a WSGI environ.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from ratelimit.categories import Category
from ratelimit.decision import Decision
from ratelimit.guard import RULES, Guard
from ratelimit.identity import Identity
from ratelimit.rates import Rate

SPENT: Final = "ratelimit.spent"
"""Where it is noted, once anything was spent."""
_LAYERS: Final = 8
"""Places that a request passes one after another. More of them is not layers but a loop that makes its limits anew."""
_NOTES: Final = 32
"""What is kept of a request that spends again and again, by every alias of a GraphQL document, say: the latest."""


class _Spending:
    """What one guard spent, and the guards that it stood in for. Holding them, and through them their rules, keeps what
    they are told apart by from becoming another's."""

    __slots__ = ("_counted", "_place", "decision", "seen_by")

    def __init__(self, guard: Guard, identity: Identity, decision: Decision) -> None:
        self._place = _place(guard)
        self._counted = None if self._place is None else _counted(guard, identity)
        self.decision = decision
        self.seen_by = [guard]

    def is_of(self, place: object, caller: object) -> bool:
        """Whether it was spent there, for that caller."""
        return self._place == place and self._counted == caller

    def stands_in_for(self, guard: Guard) -> bool:
        """Whether `guard` may take this for what it would spend; true once."""
        cost: Any = self.seen_by[0].cost
        if cost < guard.cost or guard in self.seen_by or len(self.seen_by) == _LAYERS:
            return False
        if cost != guard.cost and not self.decision.allowed:  # what is cheaper may pass
            return False
        self.seen_by.append(guard)
        return True


def note_spent(
    request: MutableMapping[str, Any], guard: Guard, identity: Identity, decision: Decision, args: tuple[Any, ...] = ()
) -> None:
    """Notes what `guard` spent for a request. What that means is found out if another guard asks, as few do; but what rules
    knew of the call, now: it may change until then. `args` are what the guard's callables were given."""
    if guard.constant is None:
        if callable(guard.key) or type(guard.cost) is not int:
            return
        identity = _knowing(guard, identity, args)
    note = guard, identity, decision
    known = request.get(SPENT)
    if known is None:
        request[SPENT] = [note]
    else:
        known.append(note)
        if len(known) > _NOTES:
            del known[0]


def spent(
    request: MutableMapping[str, Any], guard: Guard, identity: Identity, args: tuple[Any, ...] = ()
) -> Decision | None:
    """The decision on what was spent for the request that `guard` is asked about, None if it has yet to count it. Asked
    again, it gives None, unless more was spent."""
    known = request.get(SPENT)
    if not known:
        return None
    place = _place(guard)
    if place is None:
        return None
    caller = _counted(guard, _knowing(guard, identity, args))
    for number, noted in enumerate(known):
        if isinstance(noted, tuple):
            noted = known[number] = _Spending(*noted)
        if noted.is_of(place, caller) and noted.stands_in_for(guard):
            decision: Decision = noted.decision
            return decision
    return None


def _place(guard: Guard) -> object:
    """What two guards have in common that count the same; None for one that asks a callable, or counts in a group that it
    is told when it is asked."""
    rule = guard.rule if guard.rate is None else guard.rate
    if callable(guard.key) or callable(rule) or guard.attributes is not None or type(guard.cost) is not int:
        return None
    if guard.counts_apart and guard.group is None:
        return None
    limiter = id(guard.limiter)
    if isinstance(rule, (Category, Rate)):
        return limiter, rule, guard.group, guard.key
    # Rules look at what the place knows of the call: they mean the same only where that is the same.
    return limiter, rule if isinstance(rule, str) else id(rule), guard.group, guard.facts, guard.protocol


def _knowing(guard: Guard, identity: Identity, args: tuple[Any, ...]) -> Identity:
    """The caller with what rules know of the call."""
    if guard.facts is None or not isinstance(guard.rule, RULES):
        return identity
    return identity.having(**guard.facts(*args))


def _counted(guard: Guard, identity: Identity) -> object:
    """What of a caller makes a difference to what is counted."""
    rule = guard.rule if guard.rate is None else guard.rate
    key: Any = guard.key
    if isinstance(rule, Rate):
        return identity.key(key)
    if isinstance(rule, Category):
        return identity.key(key), identity.user is None, identity.superuser, identity.capped
    return identity, identity.attributes  # which identities are not compared by
