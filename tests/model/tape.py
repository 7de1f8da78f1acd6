"""A whole sequence on a real server in one command.

    tape = Tape(redis.Redis(...))
    list(play(tape.store, steps))              # notes the commands, with made-up replies
    tape.run()                                 # the server does them all
    compare(tape.store, steps, "seed 7")       # the same questions again, now with the server's replies

The shipped scripts are run as they are, as functions of one larger script. So it is fast, and the server's own clock, by which
keys expire, stands still meanwhile: the tests' clock alone decides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import redis

from ratelimit import Rate
from ratelimit.stores import redis as redis_store
from ratelimit.stores import redis_joint, redis_plain
from ratelimit.stores.redis import RedisStore

FIELDS = 11
JOINT = [
    redis_joint.script_for(list(map(Rate.parse, rates)))
    for rates in (["1/m"], ["1/m burst 2"], ["1/m sliding"], ["1/m burst 2", "1/m sliding"])
]
SCRIPTS = (redis_store._APPLY, redis_plain._FIXED, redis_plain._BUCKET, redis_plain._WINDOWS, *JOINT)
RUNS = "".join(f"runs['{script.digest}'] = function(KEYS, ARGV)\n{script.source}\nend\n" for script in SCRIPTS)
ALL = f"""
local runs = {{}}
{RUNS}
local replies = {{}}
for _, command in ipairs(cjson.decode(ARGV[1])) do
  local reply
  if command.args then reply = runs[command.digest](command.keys, command.args) else redis.call('DEL', unpack(command.keys)) end
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
        self._replies: Iterator[Any] | None = None

    def evalsha(self, digest: str, number: int, *words: Any) -> Any:
        if self._replies is not None:
            return next(self._replies)
        args = [str(word) for word in words[number:]]
        self._commands.append({"digest": digest, "keys": words[:number], "args": args})
        if any(digest == script.digest for script in JOINT):
            return [0] + [0, 0, 0] * number
        if digest != redis_store._APPLY.digest:
            return 0 if digest == redis_plain._FIXED.digest else [0, 0, 0, 0]
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
