"""What a denied HTTP request is answered, the same in every framework: status, headers, body.

Rules:
- The body is the error envelope (`RATELIMIT_ERRORS=json`) or problem details after RFC 9457 (`problem`).
- No cache keeps it, and scripts of other origins may read its headers.
- `RATELIMIT_ANSWER` names a plain function `(decision, answer)` that gives what is sent instead: the one place to replace it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, Final, NamedTuple

from ratelimit.decision import Decision
from ratelimit.errors import ConfigurationError
from ratelimit.headers import error_body, policy_names
from ratelimit.settings import Settings

PROBLEM_TYPE: Final = "https://iana.org/assignments/http-problem-types#quota-exceeded"
"""The problem type of draft-ietf-httpapi-ratelimit-headers."""
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+/=@-]{0,127}")
_REQUEST_ID_HEADERS: Final = ("X-Request-ID", "X-Correlation-ID")


class Answer(NamedTuple):
    """A complete response. `headers` hold everything but the body's length, `Content-Type` included."""

    status: int
    headers: dict[str, str]
    body: bytes


Replacement = Callable[[Decision, Answer], Answer]


def denied_answer(decision: Decision, settings: Settings, request_id: str | None = None) -> Answer:
    """The answer to a denied request: status 429 unless the application says otherwise."""
    shown = decision.headers(settings.headers)
    kind, content = _content(decision, settings, request_id)
    headers = {
        "Content-Type": kind,
        "Cache-Control": "no-store",
        "Access-Control-Expose-Headers": exposed(shown),
        **shown,
    }
    return replaced(decision, Answer(429, headers, json.dumps(content, separators=(",", ":")).encode()), settings)


def replaced(decision: Decision, answer: Answer, settings: Settings) -> Answer:
    """`answer`, or what the application has in its place (`RATELIMIT_ANSWER`). Raises `ConfigurationError` for what cannot be
    sent."""
    replace = replacement(settings.answer)
    return answer if replace is None else _checked(replace(decision, answer), settings)


def exposed(shown: Mapping[str, str]) -> str:
    """`Access-Control-Expose-Headers` for a denial with the headers `shown`: what scripts of other origins may read."""
    return ", ".join(shown) or "Retry-After"


def problem_details(decision: Decision, request_id: str | None = None) -> dict[str, Any]:
    """The denial as problem details (RFC 9457), with the members that the rate-limit headers' draft gives this type."""
    error = error_body(decision, request_id)["error"]
    shown = [part for part in decision.parts if part.enforced]
    names = policy_names(shown)
    found = {
        "type": PROBLEM_TYPE,
        "title": "Quota exceeded",
        "status": 429,
        "detail": error["message"],
        "violated-policies": [name for name, part in zip(names, shown, strict=True) if not part.outcome.allowed],
        "code": error["code"],
        "retry_after_ms": error["details"]["retry_after_ms"],
    }
    return found if request_id is None else {**found, "request_id": request_id}


def request_id(value_of: Callable[[str], str | None]) -> str | None:
    """The id that a proxy or a middleware gave the request; None if it is missing or looks like anything else.

    `value_of` gives the value of a header.
    """
    for name in _REQUEST_ID_HEADERS:
        value = value_of(name)
        if isinstance(value, str) and _REQUEST_ID.fullmatch(value):
            return value
    return None


def replacement(answer: str | Replacement | None) -> Replacement | None:
    """What `RATELIMIT_ANSWER` names. Raises `ConfigurationError` when it names nothing that can be called."""
    found = _imported(answer) if isinstance(answer, str) and answer else answer or None
    if iscoroutinefunction(found):
        raise ConfigurationError(
            f"RATELIMIT_ANSWER={answer!r} is async; it must be a plain function (decision, answer)"
        )
    return found


@lru_cache(maxsize=16)
def _imported(path: str) -> Replacement:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # the module is the application's: anything may go wrong in it
        raise ConfigurationError(f"RATELIMIT_ANSWER={path!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigurationError(f"RATELIMIT_ANSWER={path!r} is not callable")
    return found  # type: ignore[no-any-return]


def _content(decision: Decision, settings: Settings, request_id: str | None) -> tuple[str, dict[str, Any]]:
    if settings.errors == "problem":
        return "application/problem+json", problem_details(decision, request_id)
    return "application/json", error_body(decision, request_id)


def _checked(given: object, settings: Settings) -> Answer:
    if isinstance(given, Answer) and _can_be_sent(given):
        return given
    raise ConfigurationError(
        f"RATELIMIT_ANSWER={settings.answer!r} gave {given!r}; it must give an Answer: a status from 200 to 599, headers "
        "as texts of one line, a body as bytes"
    )


def _can_be_sent(answer: Answer) -> bool:
    status, headers, body = answer
    if type(status) is not int or not 200 <= status <= 599 or not isinstance(body, bytes):
        return False
    return isinstance(headers, Mapping) and all(
        map(_is_header_text, (text for line in headers.items() for text in line))
    )


def _is_header_text(text: object) -> bool:
    return isinstance(text, str) and not set(text) & set("\r\n\0") and all(ord(one) < 256 for one in text)
