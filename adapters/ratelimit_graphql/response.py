"""What an HTTP response tells of the limits that its request met: headers, and the status of a refusal.

Rules:
- Of all limits that a request meets, the headers tell of the strictest, as in any adapter: a refusal, else the one with the
  least left.
- Status 429, and `Retry-After` with it, is for a request of which nothing was executed: for a batch only if every
  operation of it was refused. Who is told to come again would send again what was done already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

from ratelimit import Decision
from ratelimit.answers import exposed
from ratelimit.decision import stricter

_PLACE: Final = "ratelimit_shown"


class Shown:
    """What is known of one request's limits. `asked` is the number of its operations that a limit was asked about."""

    __slots__ = ("_before", "_decision", "_passed", "_sent", "_status", "asked")

    def __init__(self) -> None:
        self.asked = 0
        self._before: tuple[Any] | None = None
        self._decision: Decision | None = None
        self._passed = 0
        self._sent: dict[str, str] = {}
        self._status = 200

    def field(self, decision: Decision) -> None:
        """Takes up a field's limit, which never changes the status."""
        if decision.counted:
            self._decision = decision if self._decision is None else stricter(self._decision, decision)

    def operation(self, decision: Decision, status: int) -> None:
        """Takes up an operation's limit, and the status that its refusal is to have."""
        self.field(decision)
        self.asked += 1
        self._passed += decision.allowed
        self._status = status

    @property
    def status(self) -> int | None:
        """The status of a request of which every operation was refused, None for others."""
        return self._status if self.asked and not self._passed else None

    def headers(self, style: str) -> dict[str, str]:
        """The headers in `style`. `Retry-After` goes with status 429 alone."""
        headers = {} if self._decision is None else self._decision.headers(style)
        if self.status != 429:
            headers.pop("Retry-After", None)
            return headers
        return {**headers, "Cache-Control": "no-store", "Access-Control-Expose-Headers": exposed(headers)}

    def write(self, response: Any, style: str) -> None:
        """Puts headers and status on `response`, in place of those that were put there before."""
        for name in self._sent:
            del response.headers[name]
        self._sent = self.headers(style)
        for name, value in self._sent.items():
            response.headers[name] = value
        if self.status is not None:
            if self._before is None:
                self._before = (getattr(response, "status_code", 200),)
            _set_status(response, self.status)
        elif self._before is not None:
            _set_status(response, self._before[0])


_current: ContextVar[Shown | None] = ContextVar("shown", default=None)


@contextmanager
def showing() -> Iterator[Shown]:
    """Gathers what this request's limits decide, for who makes its response."""
    outer = _current.get()
    shown = outer or Shown()
    _current.set(shown)
    try:
        yield shown
    finally:
        _current.set(outer)


def show_field(context: Any, decision: Decision, style: str) -> None:
    """Has the response tell of a field's limit."""
    if style != "none":
        _show(context, lambda shown: shown.field(decision), style)


def show_operation(context: Any, decision: Decision, style: str, status: int) -> None:
    """Has the response tell of an operation's limit."""
    _show(context, lambda shown: shown.operation(decision, status), style)


def _show(context: Any, take_up: Callable[[Shown], None], style: str) -> None:
    """To the context's response, if it has one (Strawberry's contexts do), else to who gathers."""
    gathered = _current.get()
    if gathered is not None:
        take_up(gathered)
        return
    with suppress(Exception):  # a context may hold anything under that name, a WebSocket for one
        response = context.get("response") if isinstance(context, dict) else getattr(context, "response", None)
        if hasattr(getattr(response, "headers", None), "__setitem__"):
            shown = getattr(response, _PLACE, None) or Shown()
            setattr(response, _PLACE, shown)
            take_up(shown)
            shown.write(response, style)


def _set_status(response: Any, status: Any) -> None:
    if hasattr(response, "set_status"):  # aiohttp's
        response.set_status(status or 200)
    else:
        response.status_code = status
