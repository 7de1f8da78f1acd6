"""The receiving side of one WebSocket connection, which only gives what a limit lets pass.

Rules:
- Messages are judged one by one, in order.
- Whoever is cancelled while it waits for a message loses none and counts none twice: the next one to wait gets it. Of several
  that wait at once, each gets another message.
"""

from __future__ import annotations

from asyncio import Lock, Task, create_task, wait
from collections.abc import Callable, Coroutine
from typing import Any

from ratelimit.asgi import WS_CLOSE_RATE_LIMITED, Message, Receive
from ratelimit.decision import Decision
from ratelimit.wire import Wire, ended


class Inbox:
    """What the application receives from. `decide` gives the decision on a message, None for one that is not counted.

    `send_message` tells whoever sent a message that it was refused; after `close_after` refusals in a row, the connection is
    closed.
    """

    def __init__(
        self,
        receive: Receive,
        wire: Wire,
        decide: Callable[[Message], Coroutine[Any, Any, Decision | None]],
        send_message: bool,
        close_after: int | None,
    ) -> None:
        self._receive, self._wire, self._decide = receive, wire, decide
        self._send_message, self._close_after = send_message, close_after
        self._step: Task[Message | None] | None = None
        self._turn = Lock()
        self._refused = 0  # in a row

    async def receive(self) -> Message:
        """The next message that is not refused."""
        async with self._turn:
            return await self._next()

    async def aclose(self) -> None:
        """Ends what is under way."""
        if self._step is not None:
            await ended(self._step)

    async def _next(self) -> Message:
        while True:
            if self._step is None:
                message = await self._receive()
                if message["type"] != "websocket.receive":
                    return message
                if self._wire.closed:
                    continue
                self._step = create_task(self._judged(message))
            await wait([self._step])  # which leaves it alone when it is cancelled itself
            step, self._step = self._step, None
            judged = step.result()
            if judged is not None:
                return judged

    async def _judged(self, message: Message) -> Message | None:
        decision = await self._decide(message)
        if decision is None:
            return message
        if decision.allowed:
            self._refused = 0
            return message
        self._refused += 1
        if self._send_message:
            await self._wire.tell(decision)
        if self._refused == self._close_after:
            await self._wire.close()
            if self._wire.closed:  # not if the application has closed before
                return {"type": "websocket.disconnect", "code": WS_CLOSE_RATE_LIMITED, "reason": ""}
        return None
