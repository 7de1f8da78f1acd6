"""Telling a resolver whose budget its field spends, and that it is over the limit where `block=False` lets it go on."""

from __future__ import annotations

from collections.abc import MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from ratelimit import ConfigurationError, Decision
from ratelimit_graphql.context import request_of

_refused: ContextVar[Decision | None] = ContextVar("refused", default=None)


def flag(context: Any, decision: Decision) -> None:
    """Set `limited`, `limit_decision` and `limit_key` on the request, for the field about to be resolved.

    Of several limits on one field any refusal counts, whichever comes last. On a request that is a mapping
    (a WSGI environ, a plain dict) they are keys. `ConfigurationError` for a context that can hold neither,
    such as None: a limit that nobody could notice would be none.
    """
    shown = _shown(decision)
    try:
        _set(request_of(context), limited=not shown.allowed, limit_decision=shown, limit_key=_key(shown))
    except (AttributeError, TypeError):
        raise ConfigurationError(
            f"block=False cannot set `limited` on a context of type {type(context).__qualname__}: "
            "use a request, a dict or an object with attributes as the context, or block=True"
        ) from None


def tell_key(context: Any, decision: Decision) -> None:
    """Set `limit_key`, the caller whose budget the field spends, on the request, if that can hold it."""
    with suppress(Exception):  # some kinds of object have errors of their own for an attribute they do not know
        _set(request_of(context), limit_key=_key(_shown(decision)))


def _shown(decision: Decision) -> Decision:
    """`decision`, or an earlier refusal of the same field."""
    earlier = _refused.get()
    return decision if earlier is None or not decision else earlier


def _key(decision: Decision) -> str | None:
    return decision.key if decision.counted else None


def _set(request: Any, **values: Any) -> None:
    if isinstance(request, MutableMapping):
        request.update(values)
    else:
        for name, value in values.items():
            setattr(request, name, value)


class PassedOn:
    """While the resolver runs, further limits on the same field know of a refusal that did not block."""

    __slots__ = ("_before", "_decision")

    def __init__(self, decision: Decision) -> None:
        self._decision = decision

    def __enter__(self) -> None:
        self._before = _refused.get()
        if not self._decision:
            _refused.set(self._decision)

    def __exit__(self, *_: object) -> None:
        # Not reset() with a token: a coroutine that is thrown away may end in another context.
        _refused.set(self._before)
