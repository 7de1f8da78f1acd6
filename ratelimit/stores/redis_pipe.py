"""One connection that all checks of an event loop share: many on the way at once, replies in order.

Rules:
- redis-py makes the connection and its handshake (TLS, ACL, unix socket, sentinel); after that its bytes are ours.
- A command is sent at once when nothing is on the way. What comes while something is, is sent together when a reply is in:
  at once if more waits than the reply woke, else at the end of the loop's turn, when the woken have asked again.
- A question is one command for one or many checks, and may take more of them in until it is sent.
- The server should work on one command while the replies of another are dealt with: a long one is written before the next
  is packed, and a long one that is alone is sent in two halves.
- A cancelled waiter's reply is read and dropped: it harms no other.
- Silence is an outage, being busy is not. When something is on the way and nothing is heard for the timeout, the connection
  is given up, and every waiter hears of it. While replies come, a waiter waits its turn; and what has arrived is read
  before the clock is looked at, so that a busy loop is not taken for a silent server.
- A server that is not the master, or not yet, is left: the next connection may lead to another one.
- A reply that is none to what was asked ends the connection: who knows whose the next one is. Its waiters hear of it too.
- When too many checks are outstanding, a further one is refused at once, instead of waiting in vain.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, Protocol

from ratelimit.stores.redis_reader import is_elsewhere, new_reader

MAX_OUTSTANDING: Final = 10_000
"""Checks and other commands that may wait for their reply; the outage policy answers for more."""

# Bytes that are written before the rest is packed: a long command, or several.
_LONG: Final = 256
_SEVERAL: Final = 4096


class Question(Protocol):
    """A command and those who wait for its reply."""

    def wait(self) -> None:
        """Is told that the command is not sent yet."""
        ...

    def leave(self) -> None:
        """Is told that the command is sent now."""
        ...

    def divided(self) -> list[Question]:
        """If it asks much, keeps one half of that and gives the other as a question of its own."""
        ...

    def packed(self) -> bytes:
        """The command."""
        ...

    def answer(self, reply: Any) -> int:
        """Takes the reply, which is an exception instance for an error. Returns how many were waiting for it."""
        ...


class Pipe(asyncio.Protocol):
    """An open connection. `closed` tells whether it is to be replaced, `room` how many more checks may wait."""

    def __init__(self, connection: Any, timeout: float) -> None:
        self.closed = False
        self.room = MAX_OUTSTANDING
        self.loop = asyncio.get_running_loop()
        self._connection = connection
        self._timeout = timeout
        self._reader = new_reader()
        self._idle = True  # nothing is on the way, and nothing is to be sent at the end of this turn
        self._sent: deque[Question] = deque()
        self._queued: list[Question] = []
        self._heard = self.loop.time()
        self._looked_again = False
        self._elsewhere: Exception | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport = connection._writer.transport
        self._transport.set_protocol(self)

    def command(self, packed: bytes) -> asyncio.Future[Any]:
        """A future of the reply; an error that the server answers is its exception."""
        if self.closed:
            raise ConnectionError("the connection is closed")
        if self.room < 1:
            raise refusal()
        future = self.loop.create_future()
        self.room -= 1
        self.put(Single(packed, future))
        return future

    def put(self, question: Question) -> None:
        """Sends a command, or soon. Whoever puts it here takes the `room` for those who wait for it."""
        if self._watch is None:
            self._watch = self.loop.call_later(self._timeout, self._look)
        if self._idle:
            self._idle = False
            self._heard = self.loop.time()
            self._looked_again = False
            self._sent.append(question)
            self._transport.write(question.packed())
        else:
            self._queued.append(question)
            question.wait()

    def data_received(self, data: bytes) -> None:
        """Gives replies to their waiters, and sends what has come meanwhile."""
        self._heard = self.loop.time()
        self._looked_again = False
        reader, sent, woken = self._reader, self._sent, 0
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                if isinstance(reply, Exception):
                    self.heed(reply)
                woken += sent[0].answer(reply)
                sent.popleft()  # not before: who waits for it would wait for ever if it cannot be read
        except Exception as error:  # what came is no reply, nobody asked for it, or it is none to what was asked
            self.close(error if isinstance(error, ConnectionError) else ConnectionError(f"not a reply: {error!r}"))
            return
        self.room += woken
        if self._elsewhere is not None:
            self.close(self._elsewhere)
        elif len(self._queued) > woken:
            self._send()
        elif woken > 1 or self._queued:
            self._idle = False
            self.loop.call_soon(self._send)
        else:
            self._idle = not sent

    def heed(self, error: Exception) -> None:
        """Is told what the server answered: when that says that the master is elsewhere, the connection is given up."""
        if is_elsewhere(error):
            self._elsewhere = error

    def _send(self) -> None:
        """Sends what is queued."""
        queued, self._queued = self._queued, []
        if not self._sent:
            self._heard = self.loop.time()
            self._looked_again = False
        self._idle = not queued and not self._sent
        ready = b""
        if len(queued) == 1 and not self._sent:
            queued += queued[0].divided()  # there is nothing else to keep the server busy with
        for question in queued:
            question.leave()
            self._sent.append(question)
            packed = question.packed()
            ready += packed
            if len(packed) > _LONG or len(ready) > _SEVERAL:
                self._transport.write(ready)
                ready = b""
        if ready:
            self._transport.write(ready)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells every waiter."""
        self.close(exc)

    def close(self, error: Exception | None = None) -> None:
        """Gives the connection up."""
        self.closed = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._transport.abort()
        waiting = [*self._sent, *self._queued]
        self._sent.clear()
        self._queued.clear()
        for question in waiting:
            question.answer(error or ConnectionError("the server closed the connection"))
        self.room = 0

    async def aclose(self) -> None:
        """`close`, and redis-py's part of it."""
        self.close()
        await self._connection.disconnect(nowait=True)

    def _look(self) -> None:
        """Gives up when the server has been silent for too long, else looks again when it will have been."""
        self._watch = None
        if not self._sent and not self._queued:
            return
        left = self._heard + self._timeout - self.loop.time()
        if left <= 0 and not self._looked_again:
            # A late timer may run before the socket is looked at; a timer of the loop's next turn runs after that.
            self._looked_again = True
            self._watch = self.loop.call_later(0, self._look)
        elif left <= 0:
            self.close(TimeoutError(f"nothing heard for {self._timeout} s"))
        else:
            self._watch = self.loop.call_later(left, self._look)


class Single:
    """A command of its own, whose reply `future` gets."""

    __slots__ = ("_future", "_packed")

    def __init__(self, packed: bytes, future: asyncio.Future[Any] | None = None) -> None:
        self._packed, self._future = packed, future

    def wait(self) -> None:
        """Nothing more can join it."""

    leave = wait

    def divided(self) -> list[Question]:
        """A command of its own is not divided."""
        return []

    def packed(self) -> bytes:
        """The command."""
        return self._packed

    def answer(self, reply: Any) -> int:
        """See `Question.answer`."""
        if self._future is None:
            return 0
        if not self._future.done():  # else cancelled
            if isinstance(reply, Exception):
                self._future.set_exception(reply)
            else:
                self._future.set_result(reply)
        return 1


def refusal() -> ConnectionError:
    """What one is told for whom there is no room."""
    return ConnectionError(f"{MAX_OUTSTANDING} checks are waiting for their reply")
