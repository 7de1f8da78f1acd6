"""The sending side of one WebSocket: what the application sends, and what a limit sends between."""

from __future__ import annotations

import json
import logging
from asyncio import Task, get_running_loop, wait
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from ratelimit.asgi import WS_CLOSE_RATE_LIMITED, Message, Send, denial_frame
from ratelimit.decision import Decision

logger = logging.getLogger("ratelimit.websocket")


class Wire:
    """Passes on what the application sends, until a limit has closed the connection: nothing is sent after that."""

    def __init__(self, send: Send) -> None:
        self.closed = False
        self._send = send
        self._left = False  # by the application
        self._closing: Task[None] | None = None

    async def send(self, message: Message) -> None:
        """The application's `send`. What it sends after a limit has closed goes nowhere: it hears of that by `receive`."""
        if self.closed:
            return
        if message["type"] == "websocket.close":
            self._left = True
        await self._send(message)

    async def tell(self, decision: Decision) -> None:
        """Sends the denial frame; a client that has gone meanwhile is no error."""
        if not self.closed and not self._left:
            with may_be_gone():
                await self._send({"type": "websocket.send", "text": json.dumps(denial_frame(decision))})

    async def close(self) -> None:
        """Ends the connection with the code that says why."""
        if not self.closed and not self._left:
            self.closed = True
            with may_be_gone():
                await self._send({"type": "websocket.close", "code": WS_CLOSE_RATE_LIMITED})

    def close_soon(self) -> None:
        """`close`, by a task of its own."""
        self._closing = get_running_loop().create_task(self.close())

    async def aclose(self) -> None:
        """Ends that task: the application has ended, and the server closes what is open."""
        if self._closing is not None:
            await ended(self._closing)


async def ended(task: Task[Any]) -> None:
    """Returns when `task` has ended, which it is told to do; what it raises is nobody's any more."""
    task.cancel()
    await wait([task])  # not the task itself: whoever is cancelled here hears of that
    if not task.cancelled():
        task.exception()


@contextmanager
def may_be_gone(log: logging.Logger = logger, *left: type[Exception]) -> Generator[None]:
    """Keeps the server's complaint about a closed socket away from the limit: the caller is limited either way.

    ASGI servers raise an OSError when the client has left; Uvicorn raises a RuntimeError when the application has
    closed, and also when it has not accepted yet, which is worth a warning. `left` are what a framework raises instead of an
    OSError.
    """
    gone: tuple[type[Exception], ...] = (OSError, *left)
    try:
        yield
    except gone as error:
        log.debug("The denial was not sent, the client has left: %r", error)
    except RuntimeError as error:
        log.warning("The denial was not sent, the socket is not open: %s", error)
