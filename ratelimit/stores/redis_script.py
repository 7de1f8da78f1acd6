"""A Lua script on the server."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from ratelimit.stores.redis_pipe import Pipe


class Script:
    """A Lua script, from one file or several in a row, and its digest.

    The server may forget it at any time (restart, failover, SCRIPT FLUSH).
    """

    def __init__(self, *names: str) -> None:
        self.source = "".join((files("ratelimit.stores") / name).read_text("utf-8") for name in names)
        self.digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        self.called = word("EVALSHA") + word(self.digest)

    def run(self, client: Any, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """One EVALSHA. A server that does not know the script has done nothing: load it and ask again."""
        try:
            return client.evalsha(self.digest, len(keys), *keys, *args)
        except NoScriptError:
            client.script_load(self.source)
            return client.evalsha(self.digest, len(keys), *keys, *args)

    async def piped(self, pipe: Pipe, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """`run` over a shared connection."""
        return await self.sent(pipe, packed("EVALSHA", self.digest, len(keys), *keys, *args))

    async def sent(self, pipe: Pipe, command: bytes) -> Any:
        """The reply to an EVALSHA of it over a shared connection."""
        try:
            return await pipe.command(command)
        except ResponseError as error:
            if not str(error).startswith("NOSCRIPT"):
                raise
        await pipe.command(packed("SCRIPT", "LOAD", self.source))
        return await pipe.command(command)

    async def arun(self, client: Any, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """`run` for an asyncio client."""
        try:
            return await client.evalsha(self.digest, len(keys), *keys, *args)
        except NoScriptError:
            await client.script_load(self.source)
            return await client.evalsha(self.digest, len(keys), *keys, *args)


def packed(*words: str | int) -> bytes:
    """A command as the server reads it: an array of texts (RESP2). The words are ASCII."""
    texts = list(map(str, words))
    body = "".join([f"${len(text)}\r\n{text}\r\n" for text in texts])
    return f"*{len(texts)}\r\n{body}".encode("ascii")


def word(text: object) -> str:
    """A word of a command, as the server reads it. It is ASCII."""
    written = str(text)
    return f"${len(written)}\r\n{written}\r\n"
