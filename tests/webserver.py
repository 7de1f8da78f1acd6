"""Uvicorn in this process, without its waits: by itself it looks ten times a second whether it should end.

with listener() as listening:
    server = WebServer(application, lifespan="off")
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await server.ready.wait()
    address(listening)                       # 127.0.0.1:4711
    server.end()                             # from any thread
    await serving
"""

from __future__ import annotations

import asyncio
import socket
from types import FrameType
from typing import Any

import uvicorn


def listener() -> socket.socket:
    """A socket on a free loopback port. Its protocol is named, for asyncio then sends each part of an answer at once:
    otherwise the second part of a short one waits until the client's system has acknowledged the first, for 40 ms."""
    listening = socket.socket(proto=socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    return listening


def address(listening: socket.socket) -> str:
    return f"127.0.0.1:{listening.getsockname()[1]}"


class WebServer(uvicorn.Server):
    """Tells when it answers, and ends as soon as it is told to and its connections are closed."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(uvicorn.Config(app, **options))
        self.ready = asyncio.Event()
        self._told = asyncio.Event()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._told.set)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.end()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)  # which makes the headers that every response has
        await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)
        await self.lifespan.shutdown()
