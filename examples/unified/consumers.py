"""WebSocket: `{"ask": "..."}` is answered, anything else is a heartbeat."""

from typing import Any

from assistant import answer
from channels.generic.websocket import AsyncJsonWebsocketConsumer

from ratelimit_channels import check_ws_rate_limit


class Assistant(AsyncJsonWebsocketConsumer):
    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        match content:
            case {"ask": str(question)}:
                await self.answer(question)
            case _:
                await self.pong()

    async def answer(self, question: str) -> None:
        if await check_ws_rate_limit(self, "AI_QUERY"):
            return
        await self.send_json({"type": "ANSWER", "answer": answer(question)})

    async def pong(self) -> None:
        if await check_ws_rate_limit(self, "WS_HEARTBEAT"):
            return
        await self.send_json({"type": "PONG"})
