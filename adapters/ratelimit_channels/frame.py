"""The frame that tells a client it was limited, and sending it in the consumer's own words."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from channels.consumer import AsyncConsumer
from channels.generic.websocket import (
    AsyncJsonWebsocketConsumer,
    AsyncWebsocketConsumer,
    JsonWebsocketConsumer,
    WebsocketConsumer,
)

from ratelimit import Decision
from ratelimit_channels.caller import Consumer

WS_CLOSE_RATE_LIMITED = 4029  # 4000-4999 are the application's own codes; 429 is HTTP's "too many requests"

_log = logging.getLogger("ratelimit.channels")


def denial_frame(decision: Decision) -> dict[str, object]:
    """What the client is told: the limit in words, and whole seconds to wait (null: waiting will not help)."""
    return {
        "type": "RATE_LIMITED",
        "error": f"Rate limit exceeded. {decision.describe()}.",
        "retry_after": decision.retry_after_seconds,
    }


async def send_denial(consumer: Consumer, decision: Decision) -> None:
    """Send the denial frame; a socket that has gone meanwhile is no error."""
    with _socket_may_be_gone():
        await _sender(consumer, denial_frame(decision))()


def send_denial_sync(consumer: Consumer, decision: Decision) -> None:
    """`send_denial` for a consumer that runs in a thread."""
    with _socket_may_be_gone():
        _sender(consumer, denial_frame(decision))()


def _sender(consumer: Any, frame: dict[str, object]) -> Callable[[], Any]:
    """The consumer's own call that sends this frame as text, ready to be made (and awaited, if it is async)."""
    if isinstance(consumer, (AsyncJsonWebsocketConsumer, JsonWebsocketConsumer)):
        return partial(consumer.send_json, frame)  # keeps an encode_json of the application's
    text = json.dumps(frame)
    generic = isinstance(consumer, (AsyncWebsocketConsumer, WebsocketConsumer))
    if isinstance(consumer, AsyncConsumer) and not generic:
        return partial(consumer.send, {"type": "websocket.send", "text": text})
    return partial(consumer.send, text_data=text)


@contextmanager
def _socket_may_be_gone() -> Generator[None]:
    """Keep the server's complaint about a closed socket away from the check: the caller is limited either way.

    ASGI servers raise an OSError when the client has left; Uvicorn raises a RuntimeError when the application has
    closed, and also when it has not accepted yet, which is worth a warning.
    """
    try:
        yield
    except OSError as error:
        _log.debug("The denial was not sent, the client has left: %r", error)
    except RuntimeError as error:
        _log.warning("The denial was not sent, the socket is not open: %s", error)
