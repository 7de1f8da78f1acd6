"""What multiplies a category's limit for one caller.

A tier function takes the caller and the category's rate and gives the rate that caller has. Replace it with
`Limiter(tiers=...)`; it is asked at every check of a category, so keep it quick and free of I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ratelimit.identity import Identity
from ratelimit.rates import Rate

Tiers = Callable[[Identity, Rate], Rate]

SUPERUSER = 10
AUTHENTICATED = 2


def tier_of(identity: Identity) -> int:
    """A number for the caller's tier by default, from 0 to 5: callers of one tier have the same rates."""
    tier = 0 if identity.user is None else 2 if identity.superuser else 1
    return tier + 3 if identity.capped else tier


def default_tiers(identity: Identity, rate: Rate) -> Rate:
    """Superusers have 10 times the rate, authenticated callers 2 times, anonymous ones once.

    A usage-capped caller has half of that, rounded down, never below 1.
    """
    if identity.user is None:
        factor = 1
    else:
        factor = SUPERUSER if identity.superuser else AUTHENTICATED
    return rate if factor == 1 and not identity.capped else scaled(rate, factor, 2 if identity.capped else 1)


@lru_cache(maxsize=4096)
def scaled(rate: Rate, factor: int, divisor: int) -> Rate:
    """`rate.scaled(factor, divisor)`, remembered: the same few are asked for at every check."""
    return rate.scaled(factor, divisor)
