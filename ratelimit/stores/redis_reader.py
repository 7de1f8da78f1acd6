"""Replies from bytes, however they were split on the way: hiredis where it is installed, else a few lines of Python.

Both answer `gets()` with False while a reply is incomplete, and give a server's error as an exception instance.
"""

from __future__ import annotations

from typing import Any, Final

from redis.exceptions import ResponseError

_NOT_THE_MASTER: Final = ("READONLY", "LOADING", "MASTERDOWN")


def is_elsewhere(error: Exception) -> bool:
    """Whether an error, found anywhere in a reply, says that the connection does not lead to a master that serves."""
    return any(word in str(error) for word in _NOT_THE_MASTER)


class PythonReader:
    """Reads RESP2 (redis.io, "Redis serialization protocol specification"); strings are left as bytes."""

    def __init__(self) -> None:
        self._bytes = b""
        self._at = 0

    def feed(self, received: bytes) -> None:
        """Takes what has come in."""
        self._bytes = self._bytes[self._at :] + received
        self._at = 0

    def gets(self) -> Any:
        """The next reply, False if it is not complete."""
        before = self._at
        try:
            return self._reply()
        except EOFError:
            self._at = before
            return False

    def _reply(self) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b":":
            return int(rest)
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        if kind == b"$":
            return self._text(int(rest)) if rest != b"-1" else None
        if kind == b"-":
            return ResponseError(rest.decode("utf-8", "replace"))
        if kind == b"+":
            return rest
        raise ConnectionError(f"not a reply: {line[:80]!r}")

    def _line(self) -> bytes:
        end = self._bytes.find(b"\r\n", self._at)
        if end < 0:
            raise EOFError
        line = self._bytes[self._at : end]
        self._at = end + 2
        return line

    def _text(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length + 2
        if self._at > len(self._bytes):
            raise EOFError
        return self._bytes[start : start + length]


def new_reader() -> Any:
    """A reader for one connection."""
    try:
        import hiredis
    except ImportError:
        return PythonReader()
    return hiredis.Reader(protocolError=ConnectionError, replyError=ResponseError)
