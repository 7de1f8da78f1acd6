"""Connections for threads: a check leases one of them, sends its command and reads its reply. No pool's work in between.

Rules:
- redis-py makes the connection and its handshake (TLS, ACL, unix socket, sentinel); after that its bytes are ours.
- Who takes a connection off the stack owns it alone, and what was given back last is taken first. So there are as many as
  checks were made at once, not as threads ever lived: a thread for each request, or a greenlet, finds one that is open.
- At the bound a thread waits until another gives its connection back.
- Nothing is sent twice. What was idle is looked at before it is used, and replaced; once a command was sent, an error is
  the caller's, for the server may have counted.
- A connection is fit for another command only when the reply was read to its end. Whatever else happens meanwhile,
  interrupts included, the next reply could be another's: it is opened anew.
- When the server hangs up, or is no longer the master, the idle connections are doubted too.
- A forked child starts without connections: it closes its copies without a word on the wire, for they are its parent's.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any, Final
from weakref import WeakSet

from redis.exceptions import ResponseError

from ratelimit.stores.redis_reader import is_elsewhere, new_reader
from ratelimit.stores.redis_script import Script, packed

TRUSTED_SECONDS: Final = 0.1
"""A connection that was used so lately is not looked at before it is used again: that would cost system calls."""
_NEVER: Final = -inf
_LONG_AGO: Final = -1e9
_CHUNK: Final = 4096
_PING: Final = packed("PING")
_NOTHING_YET: Final = (errno.EAGAIN, errno.EWOULDBLOCK, 2)  # 2 is TLS's "want read"


class Line:
    """One connection, for one thread at a time. `used` is when the last reply was complete, `_NEVER` if it is not."""

    __slots__ = ("__weakref__", "_connection", "_feed", "_gets", "_recv", "_send", "_socket", "used")

    def __init__(self, pool: Any) -> None:
        self._connection = pool.connection_class(**pool.connection_kwargs)
        self.used = _NEVER

    def ask(self, command: bytes, further: int = 0) -> Any:
        """The reply, an error of the server's as an exception object. Opens the connection if need be.

        `command` may hold `further` commands; then it is the last one's reply, or the first error.
        """
        now = monotonic()
        idle, self.used = now - self.used, _NEVER
        if idle > TRUSTED_SECONDS and not self._sound(idle):
            self._open()
        self._send(command)
        reply = self._read()
        for _ in range(further):
            later = self._read()
            reply = reply if isinstance(reply, ResponseError) else later
        self.used = now
        return reply

    def close(self) -> None:
        self.used = _NEVER
        self._connection.disconnect()

    def _read(self) -> Any:
        while (reply := self._gets()) is False:
            received = self._recv(_CHUNK)
            if not received:
                raise ConnectionError("the server closed the connection")
            self._feed(received)
        return reply

    def _open(self) -> None:
        self.close()
        self._connection.connect()
        reader = new_reader()
        self._feed, self._gets = reader.feed, reader.gets
        self._socket = self._connection._sock
        self._send, self._recv = self._socket.sendall, self._socket.recv

    def _sound(self, idle: float) -> bool:
        """Whether a connection that was idle for so many seconds can be used."""
        if idle == inf or not self._is_quiet():
            return False
        interval = self._connection.health_check_interval  # an option of redis-py's, off by default
        return not 0 < interval < idle or self._answers()

    def _is_quiet(self) -> bool:
        """Whether the server has said nothing since its last reply, not even goodbye."""
        timeout = self._socket.gettimeout()
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)
        except OSError as error:
            return error.errno in _NOTHING_YET
        finally:
            self._socket.settimeout(timeout)
        return False

    def _answers(self) -> bool:
        try:
            self._send(_PING)
            return bool(self._read() == b"PONG")
        except OSError:
            return False


class Lines:
    """The connections of one store: `most` at once, for which a thread waits no longer than `patience` seconds."""

    def __init__(self, client: Any, most: int, patience: float) -> None:
        self._pool = client.connection_pool  # only says how a connection is made
        self._most = most
        self._patience = patience
        self._start()
        _EVERY.add(self)

    def _start(self) -> None:
        self._idle: deque[Line] = deque()
        self._all: WeakSet[Line] = WeakSet()  # weak: one that is lost between two statements takes no place
        self._returned = threading.Condition()
        self._waiting = 0

    def command(self, command: bytes, further: int = 0) -> Any:
        """The server's reply, in one round trip; see `Line.ask`. Raises what the server answers, and what went wrong."""
        idle = self._idle  # after `close` it is nobody's: what is given back to it is let go
        try:
            line = idle.pop()
        except IndexError:
            line = self._another()
        reply = None
        try:
            reply = line.ask(command, further)
            if isinstance(reply, ResponseError):
                raise reply
            return reply
        except BaseException as error:
            reply = None  # an error holds its frames, and they must not hold it
            self._failed(line, error)
            raise
        finally:
            idle.append(line)
            if self._waiting:
                with self._returned:
                    self._returned.notify()

    def scripted(self, command: bytes, source: str) -> Any:
        """The reply to an EVALSHA. A server that does not know the script has done nothing: it is loaded, and asked again."""
        try:
            return self.command(command)
        except ResponseError as error:
            if not str(error).startswith("NOSCRIPT"):
                raise
        return self.command(packed("SCRIPT", "LOAD", source) + command, further=1)

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """`Script.run` over one of these connections."""
        return self.scripted(packed("EVALSHA", script.digest, len(keys), *keys, *args), script.source)

    def heed(self, error: ResponseError) -> bool:
        """Gives the idle connections up if this, found anywhere in a reply, says that they do not lead to the master."""
        if elsewhere := is_elsewhere(error):
            self._doubt(_NEVER)
        return elsewhere

    def close(self) -> None:
        """Closes what is idle now, and what is in use when it is given back. Later commands open anew."""
        with self._returned:
            idle = self._idle
            self._idle, self._all = deque(), WeakSet()
            self._returned.notify_all()
        for line in _taken(idle):
            line.close()

    def _another(self) -> Line:
        """A new line; at the bound, one that is given back."""
        due = monotonic() + self._patience
        with self._returned:
            self._waiting += 1
            try:
                while True:
                    with suppress(IndexError):
                        return self._idle.pop()
                    if len(self._all) < self._most:
                        line = Line(self._pool)
                        self._all.add(line)
                        return line
                    if not self._returned.wait(due - monotonic()):
                        raise ConnectionError(f"all {self._most} connections are in use")
            finally:
                self._waiting -= 1

    def _failed(self, line: Line, error: BaseException) -> None:
        """Closes what cannot be used again."""
        if not isinstance(error, ResponseError):
            line.close()
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                self._doubt(_LONG_AGO)
        elif self.heed(error):
            line.close()

    def _doubt(self, used: float) -> None:
        """Has the idle lines looked at before they are used again, or opened anew."""
        lines = _taken(self._idle)
        for line in lines:
            line.used = min(line.used, used)
        self._idle.extend(reversed(lines))
        with self._returned:
            self._returned.notify_all()


def _taken(idle: deque[Line]) -> list[Line]:
    """All lines off the stack, which makes them the caller's own."""
    lines = []
    with suppress(IndexError):
        while True:
            lines.append(idle.pop())
    return lines


_EVERY: Final[WeakSet[Lines]] = WeakSet()


def _start_anew() -> None:
    for lines in list(_EVERY):
        lines._start()


with suppress(AttributeError):  # a system without fork
    os.register_at_fork(after_in_child=_start_anew)
