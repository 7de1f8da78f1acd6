"""What belongs to one event loop: asyncio connections serve only the loop that opened them.

Rules:
- A target has connections of the loop's own: one, or on a cluster one to each node. A client that was handed in is used
  as it is.
- redis-py's client makes those connections, and does itself what is rare: walking the keyspace.
- No more commands run on a client at once than there are `places`, because the pools of clusters and sentinels would open
  ever more connections, or raise. The first command starts the client and the others wait, because a cluster client
  loses connections when several do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ratelimit.stores.base import Callers
from ratelimit.stores.redis_clients import aclose_client
from ratelimit.stores.redis_cluster import Nodes
from ratelimit.stores.redis_joint import RedisJoint
from ratelimit.stores.redis_opener import PipeOpener
from ratelimit.stores.redis_pipe import Pipe
from ratelimit.stores.redis_script import Script, packed


class LoopConnections:
    """The running loop's connections. `kind` is the target's, empty for a client that was handed in."""

    def __init__(self, client: Any, kind: str, max_connections: int, timeout: float) -> None:
        self.nodes = Nodes(client, timeout) if kind == "cluster" else None
        self._opener = PipeOpener(client.connection_pool, timeout) if kind in ("single", "sentinel") else None
        self._client = client
        self._timeout = timeout
        self._places = asyncio.Semaphore(max_connections)
        self._started = False
        self._starting = asyncio.Lock()

    @property
    def pipe(self) -> Pipe | None:
        """The one connection, if there is one and it is open."""
        return self._opener.pipe if self._opener is not None else None

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Runs a script; on a cluster its keys are in one slot."""
        if self.nodes is not None:
            return await self.nodes.run(script, keys, args)
        if self._opener is not None:
            return await script.piped(self._opener.pipe or await self._opener.open(), keys, args)
        async with self.connected(self._timeout) as client:
            return await script.arun(client, keys, args)

    async def ask_joint(self, of: RedisJoint, callers: Callers, cost: int, now_us: int) -> Any:
        """The reply to a check of several rates; on a cluster their keys are in one slot."""
        if self._opener is None:
            return await self.run(*of.question(callers, cost, now_us))
        pipe = self._opener.pipe or await self._opener.open()
        return await of.script.sent(pipe, of.command(callers, cost, now_us))

    async def delete(self, keys: Sequence[str]) -> None:
        """Deletes keys; on a cluster they are in one slot."""
        if self.nodes is not None:
            await self.nodes.command(keys[0], packed("DEL", *keys))
        elif self._opener is not None:
            await (self._opener.pipe or await self._opener.open()).command(packed("DEL", *keys))
        else:
            async with self.connected(self._timeout) as client:
                await client.execute_command("DEL", *keys)

    @asynccontextmanager
    async def connected(self, within: float | None) -> AsyncIterator[Any]:
        """The client, for commands that together take no longer than `within` seconds."""
        async with self._places, asyncio.timeout(within):
            if not self._started:
                await self._start()
            yield self._client

    async def _start(self) -> None:
        async with self._starting:
            await self._client.initialize()  # once: later calls of it find nothing to do
            self._started = True

    async def aclose(self) -> None:
        """Closes the connections."""
        if self.nodes is not None:
            await self.nodes.aclose()
        if self._opener is not None:
            await self._opener.aclose()
        await aclose_client(self._client)
