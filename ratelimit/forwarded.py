"""The `Forwarded` header (RFC 7239), read from the right: what stands left of the trusted hops is never looked at.

Rules:
- Elements are parted by commas outside quoted strings. Quotes are matched from the right, where the trusted hops wrote theirs:
  a quote that a caller left open on the left cannot swallow what a proxy added after it.
- An element's hop is its one `for`, whatever the order of its pairs and their letter case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

LONGEST: Final = 1_000
"""Characters of an element. A longer one was written by no proxy: it ends the chain."""

# Possessive but for the pair itself, which the first releases of 3.11 get wrong: whatever a header holds, it is read once.
_PAIR: Final = re.compile(
    r"""[ \t]*+(?:([!#$%&'*+.^_`|~0-9A-Za-z-]++)[ \t]*+=[ \t]*+(?:"([^"\\]*+(?:\\.[^"\\]*+)*+)"|([^ \t;,"]*+)))?[ \t]*+(;|\Z)""",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def elements(text: str) -> Iterator[str]:
    """The elements of a header's joined lines, the last one first."""
    end = len(text)
    while True:
        start = _start(text, end)
        yield text[start:end]
        if start == 0 or end - start > LONGEST:
            return
        end = start - 1


def hop(element: str) -> str:
    """The node that an element was sent for: `203.0.113.7:4711`, `[2001:db8::1]`, `unknown`, `_hidden`; empty if it
    does not say, says it twice, or is malformed."""
    found: list[str] = []
    at = 0
    while True:
        pair = _PAIR.match(element, at) if len(element) <= LONGEST else None
        if pair is None:
            return ""
        name, quoted, plain, end = pair.groups()
        if name is not None and name.lower() == "for":
            found.append(plain if quoted is None else _ESCAPED.sub(r"\1", quoted))
        if not end:
            break
        at = pair.end()
    return found[0] if len(found) == 1 else ""


def _start(text: str, end: int) -> int:
    """Where the element that ends at `end` begins: after the nearest comma that stands in no quoted string."""
    lowest = max(0, end - LONGEST - 1)
    at, quoted = end, False
    while True:
        quote = text.rfind('"', lowest, at)
        comma = -1 if quoted else text.rfind(",", lowest, at)
        if comma > quote:
            return comma + 1
        if quote < 0:
            return lowest
        at, quoted = quote, not quoted or _is_escaped(text, quote)


def _is_escaped(text: str, at: int) -> bool:
    """Whether a quote inside a quoted string belongs to it, by the backslashes before it."""
    before = at
    while before and text[before - 1] == "\\":
        before -= 1
    return (at - before) % 2 == 1
