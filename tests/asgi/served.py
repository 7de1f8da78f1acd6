"""An ASGI application for the tests that run a real server: the clock stands still, counts are in `TEST_STORE`."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, WebSocket
from fastapi.responses import PlainTextResponse, StreamingResponse

from ratelimit import Decision, Limiter, set_limiter
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock
from ratelimit_asgi import PathRule, RateLimitMiddleware, check_ws_rate_limit, limit

set_limiter(Limiter(os.environ.get("TEST_STORE") or "memory://", settings=Settings(headers="x"), clock=FakeClock()))

application = FastAPI()
application.add_middleware(
    RateLimitMiddleware,
    paths=[PathRule("/limited", "4/m"), PathRule("/chat", "2/m"), PathRule("/events", "1/m"), PathRule("/echo", "2/m")],
)
released = asyncio.Event()


@application.api_route("/limited", methods=["GET", "POST"])
async def limited() -> PlainTextResponse:
    return PlainTextResponse("ok")


@application.post("/echo")
async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(await request.body())


@application.get("/dependency")
async def dependency(decision: Annotated[Decision, Depends(limit(rate="4/m"))]) -> int:
    return decision.remaining


@application.get("/events")
async def events() -> StreamingResponse:
    async def stream() -> Any:
        yield "data: first\n\n"
        await released.wait()
        yield "data: last\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


@application.post("/release")
async def release() -> None:
    released.set()


@application.websocket("/chat")
async def chat(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        if not await check_ws_rate_limit(websocket, rate="3/m"):
            await websocket.send_text(text)


@application.websocket("/guarded")
async def guarded(websocket: WebSocket, _: Annotated[Decision, Depends(limit(rate="1/m"))]) -> None:
    await websocket.accept()
    await websocket.close()
