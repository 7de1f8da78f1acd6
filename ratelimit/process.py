"""The process's limiter, and the shortest form of asking it."""

from __future__ import annotations

import threading

from ratelimit.engine import Limiter
from ratelimit.plan import RuleLike
from ratelimit.rates import Rate

_limiter: Limiter | None = None
_limiter_lock = threading.Lock()


def get_limiter() -> Limiter:
    """The process's limiter: the one `set_limiter` was given, else one that follows the settings."""
    global _limiter
    limiter = _limiter
    if limiter is None:
        with _limiter_lock:
            limiter = _limiter
            if limiter is None:
                limiter = _limiter = Limiter()
    return limiter


def set_limiter(limiter: Limiter | None) -> None:
    """Makes `limiter` the process's one; None makes the next `get_limiter` build it anew."""
    global _limiter
    _limiter = limiter


def is_rate_limited(group: str, key: str, rate: RuleLike, increment: bool = True) -> bool:
    """The shortest form: True when `key` has used up `rate` in `group`. One round trip.

    `rate` is a rate's text, a `Rate` or a category; `increment=False` only looks.
    """
    limiter = get_limiter()
    return not (limiter.check if increment else limiter.peek)(_read(rate), key, group=group)


async def ais_rate_limited(group: str, key: str, rate: RuleLike, increment: bool = True) -> bool:
    """`is_rate_limited` for an event loop."""
    limiter = get_limiter()
    return not await (limiter.acheck if increment else limiter.apeek)(_read(rate), key, group=group)


def _read(rate: RuleLike) -> RuleLike:
    return Rate.parse(rate) if isinstance(rate, str) and "/" in rate else rate
