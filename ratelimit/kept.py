"""Guards of places that are told their limit anew at every call: made once, found again by the same words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from ratelimit.categories import Category
from ratelimit.engine import Limiter
from ratelimit.guard import Guard
from ratelimit.rates import Rate

_WORDS: Final = frozenset({type(None), str, int, Rate, Category})
"""No bool: True equals 1, and is no cost."""


def kept_guard(
    rule: Any,
    *,
    rate: Any,
    key: Any,
    group: str | None = None,
    cost: Any,
    attributes: Any,
    facts: Callable[..., Mapping[str, Any]],
    protocol: str,
    limiter: Limiter | None,
) -> Guard:
    """A guard for a place that is told its limit anew at every call: the same one for the same words.

    A callable, a rule and a limiter may be of that call alone: a guard with one is not kept.
    """
    words = rule, rate, key, group, cost
    if limiter is None and attributes is None and _WORDS.issuperset(map(type, words)):
        return _kept(*words, facts, protocol)
    return Guard(
        rule,
        rate=rate,
        key=key,
        group=group,
        cost=cost,
        attributes=attributes,
        facts=facts,
        protocol=protocol,
        limiter=limiter,
    )


@lru_cache(maxsize=256)
def _kept(rule: Any, rate: Any, key: Any, group: Any, cost: Any, facts: Any, protocol: str) -> Guard:
    return Guard(rule, rate=rate, key=key, group=group, cost=cost, facts=facts, protocol=protocol)
