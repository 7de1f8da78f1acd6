"""Response headers and error bodies, the same for every protocol that has them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ratelimit.compiling import Unchecked
from ratelimit.errors import ConfigurationError
from ratelimit.keys import encoded
from ratelimit.outcome import whole_seconds
from ratelimit.rates import AtOnce

if TYPE_CHECKING:
    from ratelimit.decision import Decision, Part

HEADER_STYLES: Final = ("none", "ietf", "x")
RAW_NAMES: Final = tuple(
    b"retry-after ratelimit-policy ratelimit x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset".split()
)
"""What `raw_headers` may be called. To be compared with: applications call theirs by a `bytearray`, too, which has no hash."""
_REMEMBERED: Final = 1024
_LONGEST: Final = 256
"""Characters of a rule's name that are worth remembering what headers call it."""


def response_headers(decision: Decision, style: str | Unchecked = "none") -> dict[str, str]:
    """See `Decision.headers`. An unknown style is a `ConfigurationError`."""
    if style not in HEADER_STYLES:
        raise ConfigurationError(f"unknown header style {style!r}; use one of {', '.join(HEADER_STYLES)}")
    headers: dict[str, str] = {}
    if not decision.allowed:
        wait = decision.retry_after_seconds
        if wait is not None:
            headers["Retry-After"] = str(wait)
    if style != "none":
        # In shadow, nothing is for clients to heed; when the binding part only counts, all do.
        if style == "x" and (figures := decision.figures()) is not None:
            limit, remaining, reset_us = figures
            headers["X-RateLimit-Limit"] = str(limit)
            headers["X-RateLimit-Remaining"] = str(remaining)
            headers["X-RateLimit-Reset"] = str(whole_seconds(reset_us))
        elif style == "ietf" and decision.binding.enforced:
            shown = [part for part in decision.parts if part.enforced]
            names = [_quoted(name) for name in policy_names(shown)]
            headers["RateLimit-Policy"] = ", ".join(map(_policy, names, shown))
            headers["RateLimit"] = ", ".join(map(_state, names, shown))
    return headers


def raw_headers(decision: Decision, style: str | Unchecked = "none") -> list[tuple[bytes, bytes]]:
    """`response_headers` as an ASGI application sends them: bytes, the names in lower case."""
    if decision.allowed:
        if style == "none":
            return []
        if style == "x":  # what most servers send with every response
            figures = decision.figures()
            if figures is None:
                return []
            limit, remaining, reset_us = figures
            left = b"x-ratelimit-remaining", b"%d" % remaining
            return [_limit_line(limit), left, _reset_line(whole_seconds(reset_us))]
    return [(name.lower().encode(), text.encode()) for name, text in response_headers(decision, style).items()]


def _policy(name: str, part: Part) -> str:
    if isinstance(part.rate, AtOnce):
        return f'{name};q={part.outcome.limit};qu="concurrent-requests"'
    return f"{name};q={part.outcome.limit};w={part.rate.window}"


def _state(name: str, part: Part) -> str:
    if isinstance(part.rate, AtOnce):  # nobody knows when somebody will leave
        return f"{name};r={part.outcome.remaining}"
    return f"{name};r={part.outcome.remaining};t={whole_seconds(part.outcome.reset_after_us)}"


def policy_names(parts: Sequence[Part]) -> list[str]:
    """What headers and problem details call the rates of `parts`, different for each: a rule with several adds their
    windows."""
    if len(parts) == 1:
        return [parts[0].rule]
    rules = [part.rule for part in parts]
    return [part.rule if rules.count(part.rule) == 1 else f"{part.rule}-{part.rate.window}s" for part in parts]


def _quoted(name: str) -> str:
    """An RFC 9651 string: encoded to printable ASCII, quotes and backslashes escaped."""
    return _quote_cached(name) if len(name) <= _LONGEST else _quote(name)


def _quote(name: str) -> str:
    return '"' + encoded(name).replace("\\", "\\\\").replace('"', '\\"') + '"'


_quote_cached = lru_cache(maxsize=_REMEMBERED)(_quote)


@lru_cache(maxsize=_REMEMBERED)
def _limit_line(limit: int) -> tuple[bytes, bytes]:
    return b"x-ratelimit-limit", b"%d" % limit


@lru_cache(maxsize=_REMEMBERED)
def _reset_line(seconds: int) -> tuple[bytes, bytes]:
    return b"x-ratelimit-reset", b"%d" % seconds


def error_body(decision: Decision, request_id: str | None = None) -> dict[str, Any]:
    """The JSON envelope of a denial: code `RATE_LIMITED`, message, the wait in milliseconds (null if it never ends)."""
    wait = decision.retry_after
    return {
        "error": {
            "code": "RATE_LIMITED",
            "message": decision.exceeded_message(),
            "details": {"retry_after_ms": None if wait is None else _milliseconds(wait)},
            "request_id": request_id,
        }
    }


def _milliseconds(seconds: float) -> int:
    return -(-round(seconds * 1_000_000) // 1000)
