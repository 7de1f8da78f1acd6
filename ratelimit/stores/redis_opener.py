"""Opens connections of an event loop.

Rules:
- One attempt at a time: those who wait for a connection share its outcome, and one that is cancelled harms no other.
- Being busy is no outage here either: when it was the loop that could not attend to the attempt, that goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ratelimit.stores.redis_pipe import Pipe


class PipeOpener:
    """Opens a pipe of one event loop: one attempt at a time, whose outcome all who wait for it share.

    `pool` (redis-py's, or its node of a cluster) says how a connection is made, and makes none.
    """

    def __init__(self, pool: Any, timeout: float) -> None:
        self._pool = pool
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
        # Its own timeouts would take a busy loop for a silent server.
        patient = {"socket_timeout": None, "socket_connect_timeout": None}
        connection = self._pool.connection_class(**{**self._pool.connection_kwargs, **patient})
        try:
            await patiently(connection.connect, self._timeout, "no connection")
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return Pipe(connection, self._timeout)

    def _opened(self, task: asyncio.Task[Pipe]) -> None:
        self._opening = None
        if not task.cancelled() and task.exception() is None:
            self._pipe = task.result()


async def patiently(work: Callable[[], Coroutine[Any, Any, Any]], timeout: float, failure: str) -> None:  # noqa: ASYNC109
    """Waits twice the timeout, for `work` takes several trips; anew when it was the loop that was busy."""
    loop, task = asyncio.get_running_loop(), asyncio.create_task(work())
    late = True
    try:
        while late:
            due = loop.time() + 2 * timeout
            done, _ = await asyncio.wait({task}, timeout=2 * timeout)
            if done:
                task.result()
                return
            late = loop.time() - due >= timeout / 2
        raise TimeoutError(f"{failure} within {2 * timeout} s")
    finally:
        task.cancel()
