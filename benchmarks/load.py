"""A lean HTTP client: so many connections, each of which asks again as soon as it was answered, in one thread.

It knows what the answer is (`ok`), so it parses nothing: about a tenth of what the server does for a request.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

HOST = "127.0.0.1"
END = b"\r\n\r\nok"
GOOD = b"HTTP/1.1 200 "
CHUNK = 65_536
SECONDS = 10.0


class Failed(Exception):
    """The server answered something else, or nothing."""


class Load:
    """Open connections to one server."""

    def __init__(self, connections: list[socket.socket]) -> None:
        self._connections = connections
        self._selector = selectors.DefaultSelector()
        for one in connections:
            self._selector.register(one, selectors.EVENT_READ)

    def ask(self, path: str, n: int) -> None:
        """Asks `path` n times. Raises `Failed` for any answer but `200` and `ok`."""
        request = f"GET {path} HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()
        asked, answered = 0, 0
        for one in self._connections[:n]:
            one.send(request)
            asked += 1
        halves: dict[socket.socket, bytes] = {}
        while answered < n:
            ready = self._selector.select(SECONDS)
            if not ready:
                raise Failed(f"{path}: no answer")
            for key, _ in ready:
                one = cast(socket.socket, key.fileobj)
                answer = halves.pop(one, b"") + one.recv(CHUNK)
                if not answer.startswith(GOOD):
                    raise Failed(f"{path}: {answer[:60]!r}")
                if not answer.endswith(END):
                    halves[one] = answer
                    continue
                answered += 1
                if asked < n:
                    one.send(request)
                    asked += 1


@contextmanager
def load(port: int, connections: int) -> Iterator[Load]:
    """A load on a port of this machine; the connections are closed at the end."""
    opened = [socket.create_connection((HOST, port)) for _ in range(connections)]
    try:
        for one in opened:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Load(opened)
    finally:
        for one in opened:
            one.close()
