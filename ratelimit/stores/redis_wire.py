"""Charges as keys and arguments of `redis.lua`, and its reply as outcomes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from ratelimit.algorithms import fixed_window
from ratelimit.algorithms.base import units_of
from ratelimit.errors import StoreError
from ratelimit.keys import caller_tag, stored_key
from ratelimit.outcome import LOOK, Charge, Outcome
from ratelimit.rates import Rate
from ratelimit.transaction import Verdict, outcomes

SETTLE: Final = 2
"""The script's third mode, beside `LOOK` and `TAKE`."""
SECOND_US: Final = 1_000_000
"""Windows are whole seconds, and begin with one."""
_STATE: Final = 3
_KINDS: Final = {"fixed": "f", "anchored": "a", "sliding": "s", "token_bucket": "b", "leaky_bucket": "b"}


def all_keys(charges: Sequence[Charge], now_us: int) -> list[str]:
    keys = [stored_key(charge, now_us) for charge in charges]
    keys += [charge.ban_key for charge in charges if charge.ban_head]
    return list(dict.fromkeys(keys))


def arguments(charges: Sequence[Charge], numbered_us: int) -> tuple[list[str], list[Any]]:
    """Keys and arguments of the charges, as `redis.lua` reads them."""
    places: dict[str, int] = {}
    shadows: dict[str, int] = {}
    args: list[Any] = []
    for charge in charges:
        rate = charge.rate
        clocked = rate.algorithm == "fixed"  # distinct counting too
        args += (
            _kind(charge),
            places.setdefault(stored_key(charge, numbered_us), len(places) + 1),
            rate.limit,
            rate.capacity,
            rate.window_us,
            units_of(charge),
            0 if charge.enforce else shadows.setdefault(charge.rule, len(shadows) + 1),
            lifetime_ms(rate, numbered_us) if clocked else 0,
            places.setdefault(charge.ban_key, len(places) + 1) if charge.ban_head else 0,
            ",".join(map(str, charge.bans_us)),
            charge.member or "",
        )
    return list(places), args


def lifetime_ms(rate: Rate, now_us: int) -> int:
    """How long a clock-aligned window's key lives that is made now; the same for a whole second, so that it is packed once."""
    return fixed_window.lifetime_us((), rate, now_us - now_us % SECOND_US) // 1000


def _kind(charge: Charge) -> str:
    """The letter of the charge's algorithm in `redis.lua`."""
    return "d" if charge.member is not None else _KINDS[charge.rate.algorithm]


def read_outcomes(charges: Sequence[Charge], reply: Sequence[Any], mode: int, numbered_us: int) -> list[Outcome]:
    every, now_us, *found = map(int, reply)
    verdicts: list[Verdict] = []
    for at in range(0, len(found), 2 + _STATE):
        passes, until_us, *state = found[at : at + 2 + _STATE]
        verdicts.append(Verdict(tuple(state), bool(passes), until_us))
    return outcomes(charges, verdicts, bool(every), mode != LOOK, now_us, numbered_us)


def pattern(prefix: str, caller: str) -> str:
    literal = re.sub(r"([][*?^\\])", r"\\\1", caller_tag(caller))
    return f"{prefix}:*:{literal}:*"


def store_error(error: BaseException) -> StoreError:
    """What went wrong on the way to Redis or there, as a caller is told."""
    told = StoreError(f"Redis: {type(error).__name__}: {error}")
    told.__cause__ = error
    return told
