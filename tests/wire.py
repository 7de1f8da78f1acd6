"""What a client says on the wire: a proxy that counts commands, and a server that never answers.

    with counting_proxy(one.port) as proxy:
        limiter = Limiter(proxy.url)
        limiter.check(...)                       # connects, loads its script
        proxy.reset()
        limiter.check(...)
        assert proxy.counts == {"EVALSHA": 1}
        assert proxy.round_trips == 1

The proxy works for sync and asyncio clients alike: it runs in threads of its own.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO

HOST = "127.0.0.1"
CHUNK = 65_536

Command = tuple[str, ...]


class CommandReader:
    """Cuts a client's bytes into commands (arrays of bulk strings), however they were split on the way."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, received: bytes) -> list[Command]:
        """The commands that are complete now; what is left waits for the next call."""
        stream = BytesIO(self._pending + received)
        commands: list[Command] = []
        complete = 0
        with suppress(EOFError):
            while True:
                commands.append(_read_command(stream))
                complete = stream.tell()
        self._pending = stream.getvalue()[complete:]
        return commands


def _read_command(stream: BytesIO) -> Command:
    name, *arguments = [_read_word(stream) for _ in range(_read_number(stream))]
    return (name.upper(), *arguments)


def _read_word(stream: BytesIO) -> str:
    length = _read_number(stream)
    word = stream.read(length + 2)
    if len(word) < length + 2:
        raise EOFError
    return word[:-2].decode(errors="backslashreplace")


def _read_number(stream: BytesIO) -> int:
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError
    return int(line[1:])


@dataclass
class CountingProxy:
    """Passes every byte on, and notes what the clients asked.

    `commands` are all commands in order, name first; `counts` how many of each name; `round_trips` how often a client
    spoke after it had been answered (a pipeline is one); `connections` how many were opened. `lose_replies = 1` drops
    the next reply with its connection, after the server has done what it was asked.
    """

    target: int
    port: int = 0
    commands: list[Command] = field(default_factory=list)
    round_trips: int = 0
    connections: int = 0
    lose_replies: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _links: list[_Link] = field(default_factory=list, repr=False)

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    @property
    def counts(self) -> Counter[str]:
        return Counter(name for name, *_ in self.commands)

    def reset(self) -> None:
        """Forgets what was counted; connections stay open."""
        with self._lock:
            self.commands = []
            self.round_trips = 0
            self.connections = 0

    def join(self, client: socket.socket) -> None:
        """Joins one client to the server, until either hangs up."""
        try:
            upstream = socket.create_connection((HOST, self.target))
        except OSError:
            client.close()
            return
        link = _Link(self, client, upstream)
        with self._lock:
            self.connections += 1
            self._links.append(link)
        link.start()

    def note(self, commands: list[Command], new_trip: bool) -> None:
        with self._lock:
            self.commands += commands
            self.round_trips += new_trip

    def hang_up(self) -> None:
        """Breaks every connection."""
        for link in self._links:
            link.hang_up()


@dataclass
class _Link:
    proxy: CountingProxy
    client: socket.socket
    upstream: socket.socket
    awaiting: bool = False

    def start(self) -> None:
        for work in (self.pass_requests, self.pass_replies):
            threading.Thread(target=work, daemon=True).start()

    def pass_requests(self) -> None:
        reader = CommandReader()
        with suppress(OSError):
            while received := self.client.recv(CHUNK):
                new_trip, self.awaiting = not self.awaiting, True
                self.proxy.note(reader.feed(received), new_trip)
                self.upstream.sendall(received)
        self.hang_up()

    def pass_replies(self) -> None:
        with suppress(OSError):
            while received := self.upstream.recv(CHUNK):
                if self.proxy.lose_replies:
                    self.proxy.lose_replies -= 1
                    break
                self.awaiting = False
                self.client.sendall(received)
        self.hang_up()

    def hang_up(self) -> None:
        for one in (self.client, self.upstream):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextmanager
def counting_proxy(target: int) -> Iterator[CountingProxy]:
    """A proxy on a free port in front of the loopback port `target`."""
    proxy = CountingProxy(target)
    try:
        with _listening(proxy.join) as proxy.port:
            yield proxy
    finally:
        proxy.hang_up()


@contextmanager
def silent_server() -> Iterator[int]:
    """The port of a server that accepts every connection, reads nothing and never answers."""
    accepted: list[socket.socket] = []
    try:
        with _listening(accepted.append) as port:
            yield port
    finally:
        for one in accepted:
            one.close()


@contextmanager
def _listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    closing = threading.Event()

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            if closing.is_set():
                return client.close()
            serve(client)

    with socket.create_server((HOST, 0), backlog=256) as listener:
        acceptor = threading.Thread(target=accept, daemon=True)
        acceptor.start()
        try:
            yield listener.getsockname()[1]
        finally:
            closing.set()
            socket.create_connection(listener.getsockname()).close()  # wakes the acceptor, on any system
            acceptor.join()
