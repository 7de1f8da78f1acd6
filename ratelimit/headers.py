"""Response headers and error bodies, the same for every protocol that has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ratelimit.decision import Decision, Part, whole_seconds
from ratelimit.errors import ConfigurationError
from ratelimit.keys import encoded
from ratelimit.settings import HEADER_STYLES


def response_headers(decision: Decision, style: str = "none") -> dict[str, str]:
    """See `Decision.headers`. An unknown style is a `ConfigurationError`."""
    headers: dict[str, str] = {}
    wait = decision.retry_after_seconds
    if not decision.allowed and wait is not None:
        headers["Retry-After"] = str(wait)
    shown = [part for part in decision.parts if part.enforced]  # clients must not heed what only counts in shadow
    if style == "ietf" and shown:
        names = _names(shown)
        headers["RateLimit-Policy"] = ", ".join(map(_policy, names, shown))
        headers["RateLimit"] = ", ".join(map(_state, names, shown))
    elif style == "x" and shown:
        headers["X-RateLimit-Limit"] = str(decision.limit)
        headers["X-RateLimit-Remaining"] = str(decision.remaining)
        headers["X-RateLimit-Reset"] = str(whole_seconds(round(decision.reset_after * 1_000_000)))
    elif style not in HEADER_STYLES:
        raise ConfigurationError(f"unknown header style {style!r}; use one of {', '.join(HEADER_STYLES)}")
    return headers


def _policy(name: str, part: Part) -> str:
    return f"{name};q={part.outcome.limit};w={part.rate.window}"


def _state(name: str, part: Part) -> str:
    return f"{name};r={part.outcome.remaining};t={whole_seconds(part.outcome.reset_after_us)}"


def _names(parts: Sequence[Part]) -> list[str]:
    """The rules' names, different for each part: a rule with several rates adds their windows."""
    rules = [part.rule for part in parts]
    return [_quoted(part.rule if rules.count(part.rule) == 1 else f"{part.rule}-{part.rate.window}s") for part in parts]


def _quoted(name: str) -> str:
    """An RFC 9651 string: encoded to printable ASCII, quotes and backslashes escaped."""
    return '"' + encoded(name).replace("\\", "\\\\").replace('"', '\\"') + '"'


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
