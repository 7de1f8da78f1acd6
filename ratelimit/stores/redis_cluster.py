"""A cluster's connections for one event loop: one to each node, which all checks of its slots share.

Rules:
- redis-py says which node has which slot, and how a connection to it is made. After that the bytes are ours: see `Pipe`.
- An errand is a command for one slot. Those that come while something is on the way to their node are sent together.
- MOVED and ASK say that nothing was done: the errand goes to the node that they name, a few times at most. After MOVED the
  map of the slots is read anew.
- TRYAGAIN says so too, for one of the keys of an errand is on its way to another node: it is asked again a little later.
- A node that is lost is told to those who wait for it, and the map is read anew before the next errand.
- Reading the map and opening connections is done once for all who wait for it; a waiter that is cancelled harms no other.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, sleep
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from redis.crc import key_slot
from redis.exceptions import RedisClusterException, RedisError

from ratelimit.keys import caller_tag
from ratelimit.stores import redis_pipe, redis_plain
from ratelimit.stores.base import Taken
from ratelimit.stores.redis_opener import PipeOpener, patiently
from ratelimit.stores.redis_pipe import Pipe, Question, Single, refusal
from ratelimit.stores.redis_plain import Ask, Plain
from ratelimit.stores.redis_script import Script, packed
from ratelimit.stores.redis_wire import store_error

TURNS: Final = 5
"""How often an errand is sent elsewhere, or again."""
_MOMENT: Final = 0.005
"""Seconds until it is first sent again; then twice as long each time."""
_FAILURES: Final = (RedisError, RedisClusterException, OSError)
_ASKING: Final = packed("ASKING")


class Nodes:
    """The connections of one event loop."""

    def __init__(self, client: Any, timeout: float) -> None:
        self.loop = asyncio.get_running_loop()
        self._client = client
        self._nodes = client.nodes_manager
        self._timeout = timeout
        self._begun = False
        self._stale = True  # the map of the slots
        self._reading: asyncio.Task[None] | None = None
        self._openers: dict[str, PipeOpener] = {}
        self._routes: dict[int, Pipe] = {}
        self._searches: set[asyncio.Task[None]] = set()

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Runs a script whose keys are in one slot."""
        asked = packed("EVALSHA", script.digest, len(keys), *keys, *args)
        errand = Errand(self, slot_of(keys[0]), asked, script)
        self.send(errand)
        return await errand.future

    async def command(self, key: str, packed: bytes) -> Any:
        """The reply to a command whose keys are in the slot of `key`."""
        errand = Errand(self, slot_of(key), packed, None)
        self.send(errand)
        return await errand.future

    def send(self, errand: Errand) -> None:
        """Sends it to its node, as soon as that is connected."""
        pipe = self._routes.get(errand.slot)
        if pipe is None or pipe.closed:
            self.search(errand)
        elif pipe.room < 1:
            errand.fail(refusal())
        else:
            errand.go(pipe)

    def search(self, errand: Errand, later: float = 0) -> None:
        """Sends it once its node is known and connected, `later` seconds from now at the earliest."""
        if len(self._searches) >= redis_pipe.MAX_OUTSTANDING:
            errand.fail(refusal())
            return
        search = self.loop.create_task(self._search(errand, later))
        self._searches.add(search)
        search.add_done_callback(self._searches.discard)

    def doubt(self) -> None:
        """Has the map read anew before the next search. Nodes that are connected are not searched for."""
        self._stale = True

    def moved(self, slot: int) -> None:
        """Is told that a slot is elsewhere."""
        self._routes.pop(slot, None)
        self.doubt()

    async def aclose(self) -> None:
        """Closes the connections; whoever waits hears of it."""
        for task in [*self._searches, *([self._reading] if self._reading else [])]:
            task.cancel()
        for opener in self._openers.values():
            await opener.aclose()

    async def _search(self, errand: Errand, later: float) -> None:
        try:
            if later:
                await sleep(later)
            pipe = await self._pipe(errand)
        except _FAILURES as error:
            errand.answer(error)
        except asyncio.CancelledError:
            errand.fail(ConnectionError("the store was closed"))
            raise
        else:
            if pipe.room < 1:
                errand.fail(refusal())
            elif not errand.future.done():
                errand.go(pipe)

    async def _pipe(self, errand: Errand) -> Pipe:
        if self._stale or (errand.address and errand.address not in self._nodes.nodes_cache):
            await self._read_map()
        opener = self._opener(errand)
        try:
            pipe = opener.pipe or await opener.open()
        except _FAILURES:
            self.doubt()
            await self._read_map()
            another = self._opener(errand)
            if another is opener:
                raise
            pipe = another.pipe or await another.open()
        if not errand.asking:
            self._routes[errand.slot] = pipe
        return pipe

    def _opener(self, errand: Errand) -> PipeOpener:
        # A map that lacks a slot is none: redis-py raises.
        node = self._nodes.nodes_cache.get(errand.address) or self._nodes.slots_cache[errand.slot][0]
        opener = self._openers.get(node.name)
        if opener is None:
            opener = self._openers[node.name] = PipeOpener(node, self._timeout)
        return opener

    async def _read_map(self) -> None:
        if self._reading is None:
            # Only a client that was initialized closes its connections in the end.
            reading = self._nodes.initialize if self._begun else self._client.initialize
            self._reading = self.loop.create_task(patiently(reading, self._timeout, "no map of the cluster"))
            self._reading.add_done_callback(self._read)
        await asyncio.shield(self._reading)

    def _read(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if not task.cancelled() and task.exception() is None:
            self._begun, self._stale = True, False


class Errand:
    """A command for one slot. `future` gets its reply, or for a check of so many units of `of` what became of it."""

    __slots__ = (
        *("_cost", "_loaded", "_nodes", "_now_us", "_of", "_packed", "_pipe", "_script", "_turns"),
        *("address", "asking", "future", "slot"),
    )

    def __init__(
        self,
        nodes: Nodes,
        slot: int,
        command: bytes,
        script: Script | None,
        of: Plain | None = None,
        cost: int = 0,
        now_us: int = 0,
    ) -> None:
        self._nodes, self.slot, self._packed, self._script = nodes, slot, command, script
        self._of, self._cost, self._now_us = of, cost, now_us
        self.future: Future[Any] = nodes.loop.create_future()
        self._pipe: Pipe | None = None
        self._loaded: Pipe | None = None
        self._turns, self.address, self.asking = TURNS, "", False

    def go(self, pipe: Pipe) -> None:
        """Is sent over `pipe`, which has room."""
        self._pipe = pipe
        pipe.room -= 1
        self._put(pipe)

    def wait(self) -> None:
        """Nothing more can join it."""

    leave = wait

    def divided(self) -> list[Question]:
        """It is not divided."""
        return []

    def packed(self) -> bytes:
        """The command."""
        return self._packed

    def answer(self, reply: Any) -> int:
        """See `Question.answer`."""
        if self.future.done():  # cancelled
            return 1
        if isinstance(reply, Exception):
            return self._failed(reply)
        of = self._of
        self.future.set_result(reply if of is None else of.one_taken(reply, self._cost, self._now_us))
        return 1

    def fail(self, error: Exception) -> None:
        """Ends it with an error."""
        if not self.future.done():
            self.future.set_exception(store_error(error))

    def _failed(self, error: Exception) -> int:
        kind, _, rest = str(error).partition(" ")
        if kind == "NOSCRIPT" and self._script and self._pipe and self._loaded is not self._pipe:
            self._loaded = self._pipe
            self._pipe.put(Single(packed("SCRIPT", "LOAD", self._script.source)))
            self._put(self._pipe)
            return 0
        if kind in ("MOVED", "ASK") and self._turns:
            self._turns -= 1
            self.address, self.asking = rest.partition(" ")[2], kind == "ASK"
            if not self.asking:
                self._nodes.moved(self.slot)
            self._nodes.search(self)
            return 1
        if kind == "TRYAGAIN" and self._turns:
            self._turns -= 1
            self._nodes.search(self, _MOMENT * 2 ** (TURNS - 1 - self._turns))
            return 1
        if isinstance(error, OSError) or kind == "CLUSTERDOWN":
            self._nodes.doubt()
        self.fail(error)
        return 1

    def _put(self, pipe: Pipe) -> None:
        if self.asking:
            pipe.put(Single(_ASKING))
        pipe.put(self)


class ClusterCounter:
    """A `RedisCounter` for a cluster: callers have slots of their own, so every check is a command."""

    def __init__(self, of: Plain, ask: Ask, nodes: Callable[[], Nodes]) -> None:
        self._plain, self._ask, self._nodes = of, ask, nodes
        self._slots: dict[str, int] = Slots()

    def take(self, caller: str, cost: int, now_us: int) -> Taken:
        """Takes `cost` units for `caller` if they fit; one EVALSHA."""
        of = self._plain
        return of.one_taken(self._ask(of, caller, cost, now_us), cost, now_us)

    def atake(self, caller: str, cost: int, now_us: int) -> Awaitable[Taken]:
        """`take` for an event loop."""
        of, nodes = self._plain, self._nodes()
        asked = of.asked(of.keys(now_us)[caller], cost, now_us)
        errand = Errand(nodes, self._slots[caller], asked, of.script, of, cost, now_us)
        nodes.send(errand)
        return errand.future


class Slots(dict[str, int]):
    """The slot of each caller."""

    def __missing__(self, caller: str) -> int:
        if len(self) >= redis_plain.MAX_KEYS:
            self.clear()
        found = self[caller] = slot_of(caller_tag(caller))
        return found


def slot_of(key: str) -> int:
    """The slot that a key is in."""
    return int(key_slot(key.encode("ascii")))
