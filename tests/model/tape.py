"""A whole sequence on a real server in one command.

    tape = Tape(redis.Redis(...))
    list(play(tape.store, steps))              # notes the commands, with made-up replies
    tape.run()                                 # the server does them all
    compare(tape.store, steps, "seed 7")       # the same questions again, now with the server's replies

The shipped script is run as it is, as a function of one larger script. So it is fast, and the server's own clock, by which
keys expire, stands still meanwhile: the tests' clock alone decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import redis

from ratelimit.stores.redis import RedisStore

FIELDS = 11
SCRIPT = (files("ratelimit.stores") / "redis.lua").read_text("utf-8")
ALL = f"""
local function run(KEYS, ARGV)
{SCRIPT}
end
local replies = {{}}
for _, command in ipairs(cjson.decode(ARGV[1])) do
  local reply
  if command.args then reply = run(command.keys, command.args) else redis.call('DEL', unpack(command.keys)) end
  local rests = {{}}
  for at, key in ipairs(command.keys) do rests[at] = redis.call('PTTL', key) end
  replies[#replies + 1] = {{reply or {{}}, rests}}
end
return replies
"""


class Tape:
    """Stands in for a redis-py client."""

    def __init__(self, server: redis.Redis) -> None:
        self.store = RedisStore(client=self, server_time=False)
        self._server = server
        self._commands: list[dict[str, Any]] = []
        self._replies: Iterator[list[int]] | None = None

    def evalsha(self, digest: str, number: int, *words: Any) -> list[int]:
        if self._replies is not None:
            return next(self._replies)
        self._commands.append({"keys": words[:number], "args": [str(word) for word in words[number:]]})
        charges = (len(words) - number - 3) // FIELDS
        return [0, 0] + [0, 0, 0, 0, 0] * charges

    def execute_command(self, name: str, *keys: str) -> None:
        assert name == "DEL"
        if self._replies is None:
            self._commands.append({"keys": keys})
        else:
            next(self._replies)

    def run(self) -> None:
        """Does what was noted. Every key that is there has a lifetime after every command."""
        found = self._server.eval(ALL, 0, json.dumps(self._commands))
        for command, (_, rests) in zip(self._commands, found, strict=True):
            assert -1 not in rests, command
        self._replies = iter([reply for reply, _ in found])
