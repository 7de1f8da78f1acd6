"""The frame that tells a client it was limited, and sending it in the consumer's own words."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
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
from ratelimit.asgi import WS_CLOSE_RATE_LIMITED, denial_frame
from ratelimit.wire import may_be_gone
from ratelimit_channels.caller import Consumer

__all__ = ["WS_CLOSE_RATE_LIMITED", "denial_frame", "send_denial", "send_denial_sync"]

_log = logging.getLogger("ratelimit.channels")


async def send_denial(consumer: Consumer, decision: Decision) -> None:
    """Send the denial frame; a socket that has gone meanwhile is no error."""
    with may_be_gone(_log):
        await _sender(consumer, denial_frame(decision))()


def send_denial_sync(consumer: Consumer, decision: Decision) -> None:
    """`send_denial` for a consumer that runs in a thread."""
    with may_be_gone(_log):
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
