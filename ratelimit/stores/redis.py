"""Counts in Redis 6.2 or later, Valkey or a compatible server: sync and asyncio from one object, one round trip a check."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.cluster import RedisCluster
from redis.exceptions import RedisClusterException, RedisError

from ratelimit.algorithms.base import BY_NAME
from ratelimit.errors import ConfigurationError
from ratelimit.outcome import TAKE, Charge, Outcome
from ratelimit.rates import Rate
from ratelimit.stores.base import Callers, Share
from ratelimit.stores.redis_clients import (
    Target,
    async_client,
    close_client,
    sync_client,
    sync_lines,
    target,
)
from ratelimit.stores.redis_cluster import ClusterCounter, Nodes
from ratelimit.stores.redis_counter import RedisCounter
from ratelimit.stores.redis_joint import RedisJoint
from ratelimit.stores.redis_loop import LoopConnections
from ratelimit.stores.redis_pipe import Pipe
from ratelimit.stores.redis_places import RedisPlaces
from ratelimit.stores.redis_plain import Plain, plain, question
from ratelimit.stores.redis_script import Script, packed
from ratelimit.stores.redis_threads import Lines
from ratelimit.stores.redis_wire import SETTLE, all_keys, arguments, pattern, read_outcomes, store_error
from ratelimit.stores.slots import Apply, Step, by_slot, in_one_slot, split

DEFAULT_TIMEOUT = 0.25
"""Seconds a check may wait for the server before the outage policy answers."""
DEFAULT_MAX_CONNECTIONS = 64
"""For threads, and for the asyncio clients of clusters; else an event loop needs one connection."""

_FAILURES = (RedisError, RedisClusterException, OSError, TimeoutError)  # the cluster's own is no RedisError
_APPLY: Final = Script("redis_numbers.lua", "redis_bucket_state.lua", "redis_window_state.lua", "redis.lua")


class _StoreErrors:
    """Turns what redis-py raises inside a block into `StoreError`. Without state, so one serves all threads and tasks."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _FAILURES):
            raise store_error(error) from error


_STORE_ERRORS: Final = _StoreErrors()


class RedisStore:
    """A store for any number of processes. Nothing is sent before the first check.

    `url` is `redis://`, `rediss://`, `unix://`, `redis+cluster://host,host2` or
    `redis+sentinel://host,host2/service/db`; redis-py's query options are taken. Instead of a URL, hand in `client`
    (redis-py) and, for async checks, `async_client`; those keep their own timeouts and retries: switch retries off, for
    a script that is sent again counts again. `timeout` is in seconds and bounds the whole of an async check.

    Clock-aligned windows are numbered by the node's clock. Everything else goes by the server's, so that nodes whose clocks
    differ agree; `server_time=False` makes that the node's too, for tests with a clock of their own and for services that
    refuse TIME in scripts.
    """

    holds = frozenset({*BY_NAME, "ban", "distinct"})

    def __init__(
        self,
        url: str | None = None,
        *,
        client: Any = None,
        async_client: Any = None,
        timeout: float = DEFAULT_TIMEOUT,
        max_connections: int = DEFAULT_MAX_CONNECTIONS,
        server_time: bool = True,
    ) -> None:
        if (url is None) == (client is None and async_client is None):
            raise ConfigurationError(
                "RedisStore takes either a URL or clients, as in RedisStore('redis://localhost/0')"
            )
        if not timeout > 0:
            raise ConfigurationError(f"timeout {timeout!r} is not a number of seconds above 0")
        self.timeout = timeout
        self._target: Target | None = target(url) if url is not None else None
        self._max_connections = max_connections
        self._server_time = server_time
        self._clustered = (self._target is not None and self._target.kind == "cluster") or any(
            isinstance(given, (RedisCluster, AsyncRedisCluster)) for given in (client, async_client)
        )
        self._client = client
        self._lines: Lines | None = None  # for threads, where the connection is ours: not on a cluster
        if self._target is not None and not self._clustered:
            self._client = sync_client(self._target, timeout, max_connections)
            self._lines = sync_lines(self._client, self._target, timeout, max_connections)
        self._given_async_client = async_client
        self._loops: dict[asyncio.AbstractEventLoop, LoopConnections] = {}
        self.places = RedisPlaces(self._safely_run, self._aask, self._acommand, server_time, self._clustered)

    def counter(self, head: str, rate: Rate) -> RedisCounter | ClusterCounter:
        """See `Store.counter`."""
        of = plain(head, rate, self._server_time)
        if self._target is not None and self._clustered:
            return ClusterCounter(of, self._ask, self._nodes)
        return RedisCounter(of, self._ask, self._aask, self._pipe)

    def joint(self, shares: Sequence[Share], one_caller: bool) -> RedisJoint | None:
        """See `Store.joint`. On a cluster only for one caller: the charges of several are asked slot by slot."""
        if self._clustered and not one_caller:
            return None
        return RedisJoint(shares, self._server_time, self._ask_joint, self._aask_joint)

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        """See `Store.apply`; one EVALSHA, on a cluster one for each caller among the charges."""
        if not self._clustered or in_one_slot(charges):
            return self._apply(charges, now_us, mode)
        steps = by_slot(charges, mode)
        step = next(steps)
        while True:
            try:
                follow = partial(steps.send, self._step(step, now_us))
            except BaseException as error:
                follow = partial(steps.throw, error)
            try:
                step = follow()
            except StopIteration as end:
                return list(end.value)

    async def aapply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        """See `Store.aapply`; one EVALSHA, on a cluster one for each caller among the charges."""
        if not self._clustered or in_one_slot(charges):
            return await self._aapply(charges, now_us, mode)
        steps = by_slot(charges, mode)
        step = next(steps)
        while True:
            try:
                follow = partial(steps.send, await self._astep(step, now_us))
            except BaseException as error:
                follow = partial(steps.throw, error)
            try:
                step = follow()
            except StopIteration as end:
                return list(end.value)

    def _step(self, step: Step, now_us: int) -> list[Outcome]:
        if isinstance(step, Apply):
            return self._apply(step.charges, now_us, step.mode)
        self.settle(step.charges, now_us, now_us)
        return []

    async def _astep(self, step: Step, now_us: int) -> list[Outcome]:
        if isinstance(step, Apply):
            return await self._aapply(step.charges, now_us, step.mode)
        await self.asettle(step.charges, now_us, now_us)
        return []

    def _apply(self, charges: Sequence[Charge], now_us: int, mode: int) -> list[Outcome]:
        keys, args = self._command(charges, now_us, mode, now_us)
        with _STORE_ERRORS:
            reply = self._run(_APPLY, keys, args)
        return read_outcomes(charges, reply, mode, now_us)

    async def _aapply(self, charges: Sequence[Charge], now_us: int, mode: int) -> list[Outcome]:
        keys, args = self._command(charges, now_us, mode, now_us)
        with _STORE_ERRORS:
            reply = await self._own().run(_APPLY, keys, args)
        return read_outcomes(charges, reply, mode, now_us)

    def settle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
        """See `Store.settle`; one EVALSHA, on a cluster one for each caller among the charges."""
        with _STORE_ERRORS:
            for one in self._slots(charges):
                self._run(_APPLY, *self._command(one, now_us, SETTLE, taken_us))

    async def asettle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
        """See `Store.asettle`; one EVALSHA, on a cluster one for each caller among the charges."""
        with _STORE_ERRORS:
            for one in self._slots(charges):
                await self._own().run(_APPLY, *self._command(one, now_us, SETTLE, taken_us))

    def clear(self, charges: Sequence[Charge], now_us: int) -> None:
        """See `Store.clear`; one DEL, on a cluster one for each caller among the charges."""
        with _STORE_ERRORS:
            for keys in self._deletions(charges, now_us):
                if self._lines is not None:
                    self._lines.command(packed("DEL", *keys))
                else:
                    self._sync().execute_command("DEL", *keys)

    async def aclear(self, charges: Sequence[Charge], now_us: int) -> None:
        """See `Store.aclear`; one DEL, on a cluster one for each caller among the charges."""
        with _STORE_ERRORS:
            for keys in self._deletions(charges, now_us):
                await self._own().command("DEL", *keys)

    def clear_caller(self, prefix: str, caller: str) -> None:
        """See `Store.clear_caller`; walks the whole keyspace with SCAN, so keep it for administration."""
        with _STORE_ERRORS:
            client = self._sync()
            for key in list(client.scan_iter(match=pattern(prefix, caller), count=1000)):
                client.execute_command("DEL", key)

    async def aclear_caller(self, prefix: str, caller: str) -> None:
        """See `Store.aclear_caller`; walks the whole keyspace with SCAN, so keep it for administration."""
        with _STORE_ERRORS:
            async with self._own().connected(None) as client:
                for key in [key async for key in client.scan_iter(match=pattern(prefix, caller), count=1000)]:
                    await client.execute_command("DEL", key)

    def close(self) -> None:
        """Closes the sync connections that this store opened; those in use, when their reply is in."""
        if self._lines is not None:
            self._lines.close()
            close_client(self._client)
        elif self._target is not None and self._client is not None:
            client, self._client = self._client, None
            close_client(client)

    async def aclose(self) -> None:
        """Closes the sync connections and those of the running event loop that this store opened."""
        own = self._loops.pop(asyncio.get_running_loop(), None)
        if own is not None and self._target is not None:
            await own.aclose()
        self.close()

    def _command(self, charges: Sequence[Charge], now_us: int, mode: int, taken_us: int) -> tuple[list[str], list[Any]]:
        keys, args = arguments(charges, taken_us)
        return keys, [0 if self._server_time else now_us, mode, now_us - taken_us, *args]

    def _deletions(self, charges: Sequence[Charge], now_us: int) -> list[list[str]]:
        """The keys to delete, by command: one, on a cluster one for each caller."""
        return [all_keys(one, now_us) for one in self._slots(charges)]

    def _slots(self, charges: Sequence[Charge]) -> list[list[Charge]]:
        return split(charges) if self._clustered else [list(charges)]

    def _sync(self) -> Any:
        if self._client is None:
            if self._target is None:
                raise ConfigurationError("this RedisStore has only an asyncio client; hand in client= for sync checks")
            self._client = sync_client(self._target, self.timeout, self._max_connections)
        return self._client

    def _run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Runs a script: over a connection of ours, on a cluster or a client handed in over redis-py's pool."""
        if self._lines is not None:
            return self._lines.run(script, keys, args)
        return script.run(self._sync(), keys, args)

    def _ask(self, of: Plain, caller: str, cost: int, now_us: int) -> Any:
        """The reply to a single plain check."""
        try:  # takes less than a `with`
            if self._lines is None:
                return self._run(*question(of, caller, cost, now_us))
            return self._lines.scripted(of.asked(of.keys(now_us)[caller], cost, now_us), of.script.source)
        except _FAILURES as error:
            raise store_error(error) from error

    async def _aask(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        with _STORE_ERRORS:
            return await self._own().run(script, keys, args)

    def _safely_run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        with _STORE_ERRORS:
            return self._run(script, keys, args)

    async def _acommand(self, name: str, key: str, argument: str) -> Any:
        with _STORE_ERRORS:
            return await self._own().command(name, key, argument)

    def _ask_joint(self, of: RedisJoint, callers: Callers, cost: int, now_us: int) -> Any:
        """The reply to a check of several rates."""
        try:
            if self._lines is None:
                return self._run(*of.question(callers, cost, now_us))
            return self._lines.scripted(of.command(callers, cost, now_us), of.script.source)
        except _FAILURES as error:
            raise store_error(error) from error

    async def _aask_joint(self, of: RedisJoint, callers: Callers, cost: int, now_us: int) -> Any:
        with _STORE_ERRORS:
            return await self._own().ask_joint(of, callers, cost, now_us)

    def _pipe(self) -> Pipe | None:
        """The running loop's own connection, if it is open."""
        own = self._loops.get(asyncio.get_running_loop())
        return own.pipe if own is not None else None

    def _nodes(self) -> Nodes:
        """The running loop's own connections to a cluster."""
        nodes = self._own().nodes
        assert nodes is not None
        return nodes

    def _own(self) -> LoopConnections:
        loop = asyncio.get_running_loop()
        own = self._loops.get(loop)
        if own is None:
            for other in [other for other in list(self._loops) if other.is_closed()]:
                self._loops.pop(other, None)  # its connections go with it
            kind = self._target.kind if self._target is not None else ""
            client = self._async_client_for_loop()
            own = self._loops[loop] = LoopConnections(client, kind, self._max_connections, self.timeout)
        return own

    def _async_client_for_loop(self) -> Any:
        if self._given_async_client is not None:
            return self._given_async_client
        if self._target is None:
            raise ConfigurationError("this RedisStore has only a sync client; hand in async_client= for async checks")
        return async_client(self._target, self.timeout)
