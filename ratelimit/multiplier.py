"""Signals about a caller (reputation, attestation) as a multiplier on its limits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ratelimit.identity import Identity
from ratelimit.rates import Rate
from ratelimit.tiers import scaled

logger = logging.getLogger("ratelimit")

Multiplier = Callable[[Identity], Any]


def multiplied(rate: Rate, multiplier: Multiplier, identity: Identity) -> Rate:
    """`rate` times what `multiplier` gives for the caller, rounded down, never below 1.

    A result outside 0.01 to 100 is clamped; one that is no number counts as 1; an exception counts as 1. All three are logged.
    """
    from fractions import Fraction  # brings decimal along, for which only those who multiply should pay

    try:
        found = multiplier(identity)
        factor = Fraction(found).limit_denominator(1000)
    except Exception as error:
        logger.error("multiplier failed, using 1: %s: %s", type(error).__name__, error)
        return rate
    kept = min(max(factor, Fraction(1, 100)), Fraction(100))
    if kept != factor:
        logger.warning("multiplier %r is absurd; using %s", found, float(kept))
    return rate if kept == 1 else scaled(rate, kept.numerator, kept.denominator)
