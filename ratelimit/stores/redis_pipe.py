"""One connection that all checks of an event loop share: many on the way at once, replies in order.

Rules:
- redis-py makes the connection and its handshake (TLS, ACL, unix socket, sentinel); after that its bytes are ours.
- A command is sent at once when nothing is on the way. What comes while something is, is sent together when a reply is in.
- A cancelled waiter's reply is read and dropped: it harms no other.
- Silence is an outage, being busy is not. When something is on the way and nothing is heard for the timeout, the connection
  is given up, and every waiter hears of it. While replies come, a waiter waits its turn; and what has arrived is read
  before the clock is looked at, so that a busy loop is not taken for a silent server.
- When too many commands are outstanding, a further one is refused at once, instead of waiting in vain.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from ratelimit.stores.redis_reader import new_reader

MAX_OUTSTANDING: Final = 10_000
"""Commands that may wait for their reply; the outage policy answers for more."""


class Pipe(asyncio.Protocol):
    """An open connection. `closed` tells whether it is to be replaced."""

    def __init__(self, connection: Any, timeout: float) -> None:
        self.closed = False
        self._connection = connection
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._reader = new_reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._heard = self._loop.time()
        self._looked_again = False
        self._queued: list[bytes] = []
        self._watch: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport = connection._writer.transport
        self._transport.set_protocol(self)

    def command(self, packed: bytes) -> asyncio.Future[Any]:
        """A future of the reply; an error that the server answers is its exception."""
        if self.closed:
            raise ConnectionError("the connection is closed")
        if len(self._waiting) >= MAX_OUTSTANDING:
            raise ConnectionError(f"{MAX_OUTSTANDING} commands are waiting for their reply")
        if self._waiting:
            self._queued.append(packed)
        else:
            self._heard = self._loop.time()
            self._looked_again = False
            self._transport.write(packed)
        future = self._loop.create_future()
        self._waiting.append(future)
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout, self._look)
        return future

    def data_received(self, data: bytes) -> None:
        """Gives replies to their waiters, and sends what has come meanwhile."""
        self._heard = self._loop.time()
        self._looked_again = False
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                future = self._waiting.popleft()
                if future.done():
                    continue
                if isinstance(reply, Exception):
                    future.set_exception(reply)
                else:
                    future.set_result(reply)
        except (ConnectionError, IndexError) as error:  # what came is no reply, or nobody asked for it
            self.close(error)
            return
        if self._queued:
            self._transport.write(b"".join(self._queued))
            self._queued.clear()

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
        self._queued.clear()
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error or ConnectionError("the server closed the connection"))

    async def aclose(self) -> None:
        """`close`, and redis-py's part of it."""
        self.close()
        await self._connection.disconnect(nowait=True)

    def _look(self) -> None:
        """Gives up when the server has been silent for too long, else looks again when it will have been."""
        self._watch = None
        if not self._waiting:
            return
        left = self._heard + self._timeout - self._loop.time()
        if left <= 0 and not self._looked_again:
            # A late timer may run before the socket is looked at; a timer of the loop's next turn runs after that.
            self._looked_again = True
            self._watch = self._loop.call_later(0, self._look)
        elif left <= 0:
            self.close(TimeoutError(f"nothing heard for {self._timeout} s"))
        else:
            self._watch = self._loop.call_later(left, self._look)


class PipeOpener:
    """Opens the pipe of one event loop: one attempt at a time, whose outcome all who wait for it share."""

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._pipe: Pipe | None = None
        self._opening: asyncio.Task[Pipe] | None = None

    @property
    def pipe(self) -> Pipe | None:
        """The open pipe, if there is one."""
        pipe = self._pipe
        return pipe if pipe is not None and not pipe.closed else None

    async def open(self) -> Pipe:
        """The pipe, opened if need be within twice the timeout."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        # Shielded: a waiter that is cancelled must not take the connection from the others.
        return await asyncio.shield(self._opening)

    async def aclose(self) -> None:
        """Closes the pipe and ends an attempt to open one."""
        if self._opening is not None:
            self._opening.cancel()
        if self._pipe is not None:
            await self._pipe.aclose()

    async def _open(self) -> Pipe:
        if self._pipe is not None:
            await self._pipe.aclose()
        pool = self._client.connection_pool
        # Its own timeouts would take a busy loop for a silent server.
        patient = {"socket_timeout": None, "socket_connect_timeout": None}
        connection = pool.connection_class(**{**pool.connection_kwargs, **patient})
        connecting = asyncio.create_task(connection.connect())
        try:
            await self._patiently(connecting)
        except BaseException:
            connecting.cancel()
            await connection.disconnect(nowait=True)
            raise
        return Pipe(connection, self._timeout)

    async def _patiently(self, connecting: asyncio.Task[None]) -> None:
        """Waits twice the timeout, for a connection takes several trips; anew when it was the loop that was busy."""
        loop = asyncio.get_running_loop()
        late = True
        while late:
            due = loop.time() + 2 * self._timeout
            done, _ = await asyncio.wait({connecting}, timeout=2 * self._timeout)
            if done:
                return connecting.result()
            late = loop.time() - due >= self._timeout / 2
        raise TimeoutError(f"no connection within {2 * self._timeout} s")

    def _opened(self, task: asyncio.Task[Pipe]) -> None:
        self._opening = None
        if not task.cancelled() and task.exception() is None:
            self._pipe = task.result()
