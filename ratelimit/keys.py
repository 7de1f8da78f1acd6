"""The store key of (group, caller): `rl:graphql:Query.documents:{user:42}:28571428`.

Rules:
- Prefix, group, caller in braces, window number. The braces are Redis Cluster's hash tag: all keys of one caller share a slot.
- No two (group, caller) pairs share a key: braces, `%`, `~`, blanks, control and non-ASCII characters of either are
  percent-encoded, so the first brace ends the group. An empty caller becomes `~`, for `{}` would be no tag at all.
- A part longer than 80 characters is cut and ends in `~` and 32 hexadecimal digits of its BLAKE2b hash.
- A key has at most 218 printable ASCII characters, that of a clock-aligned window at most 214: every cache server takes it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import quote

from ratelimit.rates import Rate

if TYPE_CHECKING:
    from ratelimit.outcome import Charge

MAX_PART = 80
_CUT = 40
_CACHED = 256
# Printable ASCII without blank, percent, braces and tilde.
_PLAIN = re.compile(r"[!-$&-z|]{1,80}")
_PLAIN_CHARACTERS = "".join(chr(code) for code in range(0x21, 0x7E) if chr(code) not in "%{}")


def encoded(part: str) -> str:
    """`part` as it stands in a key: printable ASCII, at most 80 characters, different for different parts."""
    if _PLAIN.fullmatch(part):
        return part
    # Callers may write these texts: long ones are not worth a place in the cache.
    return _encode_cached(part) if len(part) <= _CACHED else _encode(part)


def _encode(part: str) -> str:
    if not part:
        return "~"
    # Every character gives at least one: only the first ones can stand in the key. quote() always keeps "~"; encode it
    # by hand, so that a tilde in a key is always ours.
    text = quote(part[: MAX_PART + 1], safe=_PLAIN_CHARACTERS, errors="surrogatepass").replace("~", "%7E")
    if len(text) <= MAX_PART:
        return text
    digest = blake2b(part.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{text[:_CUT]}~{digest}"


_encode_cached = lru_cache(maxsize=4096)(_encode)


def head(prefix: str, group: str) -> str:
    """What the keys of one group have in common: `rl:AI_QUERY`."""
    return f"{prefix}:{encoded(group)}"


def further_head(first: str, rate: Rate) -> str:
    """`head` for the second and later rates of one rule, told apart by their window: `rl:AI_QUERY~3600s`."""
    return f"{first}~{rate.window}s"


def caller_tag(caller: str) -> str:
    """The caller's part of a key with its braces."""
    return f"{{{encoded(caller)}}}"


def keyed(head: str, caller: str) -> str:
    """The key of (group, caller), without the window: `rl:AI_QUERY:{user:42}`."""
    return f"{head}:{{{encoded(caller)}}}"


def stored_key(charge: Charge, now_us: int) -> str:
    """The key of a charge's state: with the number of the clock-aligned window that holds `now_us`, or for the other
    algorithms with a letter and the window's length, `rl:api:{user:42}:t60`."""
    rate = charge.rate
    if rate.algorithm != "fixed":
        return f"{charge.key}:{rate.algorithm[0]}{rate.window}"
    number = now_us // rate.window_us
    return f"{charge.key}:{number}" if charge.member is None else f"{charge.key}:d{number}"
