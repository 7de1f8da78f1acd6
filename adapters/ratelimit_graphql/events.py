"""The events of a subscription, each of which counts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ratelimit import ConfigurationError


async def counted_events(stream: Any, count: Callable[[], Awaitable[Any]]) -> AsyncIterator[Any]:
    """The events of `stream`, `count` awaited before each is handed on. What it raises ends the stream.

    The stream is closed with this one, whoever ends it.
    """
    try:
        async for event in stream:
            await count()
            yield event
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def refuse_no_stream(stream: Any, owner: str) -> None:
    """`ConfigurationError` for what is no stream of events."""
    if not hasattr(stream, "__aiter__"):
        raise ConfigurationError(f"per_event=True on {owner}, which gives no stream of events: it is for subscriptions")
