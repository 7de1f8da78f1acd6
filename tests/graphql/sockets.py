"""A client of graphql-transport-ws."""

from __future__ import annotations

import json
from typing import Any

from websockets.asyncio.client import connect


class Socket:
    """One connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def receive(self) -> Any:
        return json.loads(await self._connection.recv())

    async def send(self, **message: Any) -> None:
        await self._connection.send(json.dumps(message))

    async def operation(self, number: int, query: str) -> list[Any]:
        """All messages that answer an operation: their types and what they bring."""
        await self.send(id=str(number), type="subscribe", payload={"query": query})
        messages = [await self.receive()]
        while messages[-1]["type"] == "next":
            messages.append(await self.receive())
        return [(one["type"], one.get("payload")) for one in messages]

    async def close(self) -> None:
        await self._connection.close()


async def opened(address: str) -> Socket:
    """A connection to that server that has been acknowledged."""
    protocol: Any = "graphql-transport-ws"
    socket = Socket(await connect(f"ws://{address}/", subprotocols=[protocol], proxy=None))
    await socket.send(type="connection_init")
    assert (await socket.receive())["type"] == "connection_ack"
    return socket
