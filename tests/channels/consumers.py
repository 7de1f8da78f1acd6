"""Consumers as an application writes them: each answers a message unless its caller is over the limit."""

from __future__ import annotations

import json
import logging
from typing import Any

from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer
from channels.generic.websocket import (
    AsyncJsonWebsocketConsumer,
    AsyncWebsocketConsumer,
    JsonWebsocketConsumer,
    WebsocketConsumer,
)

from ratelimit_channels import WS_CLOSE_RATE_LIMITED, check_ws_rate_limit, check_ws_rate_limit_sync, ws_ratelimit

ANSWER = {"type": "ANSWER"}


class Limited:
    """Takes the arguments of the check from `as_asgi(...)`."""

    def __init__(self, rule: Any = "AI_QUERY", **options: Any) -> None:
        super().__init__()
        self.rule = None if "rate" in options else rule
        self.options = options


class Json(Limited, AsyncJsonWebsocketConsumer):
    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        if await check_ws_rate_limit(self, self.rule, **self.options):
            return
        await self.send_json(ANSWER)


class OtherJson(Json):
    pass


class Text(Limited, AsyncWebsocketConsumer):
    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if await check_ws_rate_limit(self, self.rule, **self.options):
            return
        await self.send(text_data=json.dumps(ANSWER))


class Raw(Limited, AsyncConsumer):
    """A consumer without Channels' WebSocket classes: it speaks ASGI itself."""

    async def websocket_connect(self, message: Any) -> None:
        await self.send({"type": "websocket.accept"})

    async def websocket_receive(self, message: Any) -> None:
        if await check_ws_rate_limit(self, self.rule, **self.options):
            return
        await self.send({"type": "websocket.send", "text": json.dumps(ANSWER)})

    async def websocket_disconnect(self, message: Any) -> None:
        raise StopConsumer


class Sync(Limited, WebsocketConsumer):
    def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if check_ws_rate_limit_sync(self, self.rule, **self.options):
            return
        self.send(text_data=json.dumps(ANSWER))


class SyncJson(Limited, JsonWebsocketConsumer):
    def receive_json(self, content: Any, **kwargs: Any) -> None:
        if check_ws_rate_limit_sync(self, self.rule, **self.options):
            return
        self.send_json(ANSWER)


class Enveloped(Json):
    """An application with an encoding of its own for everything it sends."""

    @classmethod
    async def encode_json(cls, content: Any) -> str:
        return json.dumps({"v": 1, "payload": content})


class Guarded(AsyncJsonWebsocketConsumer):
    """Counts connections, refuses one too many, and hangs up on a caller that asks too much."""

    async def connect(self) -> None:
        if await check_ws_rate_limit(self, "WS_CONNECT", send_message=False):
            await self.close(code=WS_CLOSE_RATE_LIMITED)
            return
        await self.accept()

    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        if await check_ws_rate_limit(self, "AI_QUERY"):
            await self.close(code=WS_CLOSE_RATE_LIMITED)
            return
        await self.send_json(ANSWER)


class Leaving(Json):
    """Notes that its client has left: Channels skips this when a message's handler raised."""

    async def disconnect(self, code: int) -> None:
        logging.getLogger("tests").warning("disconnected")


class Counted(Json):
    """Counts how often `connect` was called."""

    connects = 0

    async def connect(self) -> None:
        type(self).connects += 1
        await self.accept()


class Failing(AsyncJsonWebsocketConsumer):
    """Raises at the first message: Channels does not call `disconnect` then."""

    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        raise LookupError("in the application")


class Decorated(AsyncJsonWebsocketConsumer):
    @ws_ratelimit(rate="2/m")
    async def connect(self) -> None:
        await self.accept()

    @ws_ratelimit(rate="2/m")
    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        await self.send_json(ANSWER)
