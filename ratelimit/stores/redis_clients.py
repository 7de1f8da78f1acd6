"""redis-py clients for a store URL: single server, unix socket, cluster or sentinel, sync and asyncio.

Rules:
- No client retries by itself: redis-py would send a script again whose reply was lost, and count the call twice.
- Threads wait for a free connection, for some timeouts, when as many as allowed are in use; a cluster's pools do not wait.
  In an event loop the store itself bounds how many are in use.
- For what takes the connection over, it speaks RESP2, whatever the URL says: there the server only answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any
from urllib.parse import urlsplit

import redis
import redis.asyncio
import redis.cluster
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.connection import parse_url as parse_async_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from ratelimit.errors import ConfigurationError
from ratelimit.stores import redacted
from ratelimit.stores.redis_threads import Lines

# Clusters and sentinels have pools that raise at their bound instead of waiting; this one is out of the way.
_NON_WAITING_CONNECTIONS = 1024
# Waiting for a connection that other threads are using is not the server's silence: it may take some timeouts.
_WAITS = 8
_POOL_OPTIONS = frozenset({"connection_class", "max_connections", "timeout"})
_CLUSTER_OPTIONS = frozenset(signature(redis.RedisCluster.__init__).parameters)


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL points to: `kind` is `"single"`, `"cluster"` or `"sentinel"`; `options` go to every connection."""

    kind: str
    url: str
    nodes: tuple[tuple[str, int], ...]
    service: str
    options: dict[str, Any]


def target(url: str) -> Target:
    """Reads a store URL. Raises `ConfigurationError` that names it, without its password."""
    scheme, _, rest = url.partition("://")
    base, _, kind = scheme.partition("+")
    try:
        if not kind:
            options = parse_url(url)
            _check_options(options, None if base == "unix" else urlsplit(url).path)
            return Target("single", url, (), "", options)
        userinfo, at, hosts_and_path = rest.rpartition("@")
        hosts, _, path = hosts_and_path.partition("/")
        hosts, question, query = hosts.partition("?")
        service, _, path = path.partition("/") if kind == "sentinel" else ("", "", path)
        nodes = tuple(_node(host, 26379 if kind == "sentinel" else 6379) for host in hosts.split(","))
        options = parse_url(f"{base}://{userinfo}{at}{nodes[0][0]}/{path}{question}{query}")
        _check_options(options, path.partition("?")[0], _CLUSTER_OPTIONS if kind == "cluster" else frozenset())
    except ValueError as error:
        raise ConfigurationError(f"store {redacted(url)!r}: {error}") from None
    if kind == "sentinel" and not service:
        raise ConfigurationError(
            f"store {redacted(url)!r}: expected redis+sentinel://host:26379,host2:26379/service/db"
        )
    for name in ("host", "port"):
        options.pop(name, None)
    if base == "rediss":
        options.pop("connection_class", None)
        options["ssl"] = True
    return Target(kind, url, nodes, service, options)


def _check_options(options: Mapping[str, Any], database: str | None, others: frozenset[str] = frozenset()) -> None:
    """Raises a ValueError for what redis-py passes over, or complains of only when it connects: one for each check then."""
    if database is not None and database.strip("/") and not database.strip("/").isdecimal():
        raise ValueError(f"{database.strip('/')!r} is not the number of a database")
    given = {name: value for name, value in options.items() if name not in _POOL_OPTIONS | others}
    try:
        options.get("connection_class", redis.Connection)(**given)
    except (TypeError, redis.RedisError) as error:
        raise ValueError(f"an option cannot be used: {str(error).rpartition(') got an ')[2]}") from None


def _node(host: str, default_port: int) -> tuple[str, int]:
    found = urlsplit(f"//{host}")
    if not found.hostname:
        raise ValueError("a host is missing")
    return found.hostname, found.port or default_port


def sync_client(to: Target, timeout: float, max_connections: int) -> Any:
    """A client for threads. Makes no connection, but for a cluster, whose map it reads."""
    common: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
    }
    if to.kind == "single":
        common |= {"max_connections": max_connections, "timeout": _WAITS * timeout}
        pool = redis.BlockingConnectionPool(**{**common, **to.options, "protocol": 2})
        return redis.Redis.from_pool(pool)
    common["max_connections"] = _NON_WAITING_CONNECTIONS
    if to.kind == "cluster":
        nodes = [redis.cluster.ClusterNode(host, port) for host, port in to.nodes]
        return redis.RedisCluster(startup_nodes=nodes, **{**common, **_cluster_retries(), **to.options})
    sentinel = redis.Sentinel(
        list(to.nodes), sentinel_kwargs=_sentinel_options(common), **{**common, **to.options, "protocol": 2}
    )
    return sentinel.master_for(to.service)


def sync_lines(client: Any, to: Target, timeout: float, max_connections: int) -> Lines:
    """Connections of their own for the checks of threads, made as those of `sync_client(to)`. Makes none yet."""
    most = int(to.options.get("max_connections", max_connections))
    return Lines(client, most, float(to.options.get("timeout", _WAITS * timeout)))


def async_client(to: Target, timeout: float) -> Any:
    """A client for the running event loop. Makes no connection."""
    common: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": AsyncRetry(NoBackoff(), 0),
    }
    common["max_connections"] = _NON_WAITING_CONNECTIONS  # the store bounds how many are in use at once
    if to.kind == "single":
        pool = redis.asyncio.ConnectionPool(**{**common, **_async_options(to), "protocol": 2})
        return redis.asyncio.Redis.from_pool(pool)
    if to.kind == "cluster":
        nodes = [AsyncClusterNode(host, port) for host, port in to.nodes]
        options = {**common, **_cluster_retries(), **to.options, "protocol": 2}
        return redis.asyncio.RedisCluster(startup_nodes=nodes, **options)
    sentinel = redis.asyncio.Sentinel(
        list(to.nodes), sentinel_kwargs=_sentinel_options(common), **{**common, **to.options, "protocol": 2}
    )
    return sentinel.master_for(to.service)


def close_client(client: Any) -> None:
    """Closes a client and, behind a sentinel, the connections to the sentinels."""
    client.close()
    for sentinel in _sentinels(client):
        sentinel.close()


async def aclose_client(client: Any) -> None:
    """`close_client` for an asyncio client, in its loop."""
    await client.aclose()
    for sentinel in _sentinels(client):
        await sentinel.aclose()


def _sentinels(client: Any) -> list[Any]:
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    return list(manager.sentinels) if manager is not None else []


def _async_options(to: Target) -> dict[str, Any]:
    """The URL's options with the asyncio connection class: a URL's scheme decides on TLS or a unix socket."""
    return dict(parse_async_url(to.url))


def _sentinel_options(common: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in common.items() if name != "max_connections"}


def _cluster_retries() -> dict[str, Any]:
    # From redis-py 6 on `retry` covers the cluster client too, and the older argument is deprecated.
    return {"cluster_error_retry_attempts": 0} if int(redis.__version__.split(".")[0]) < 6 else {}
