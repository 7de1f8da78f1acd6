"""Server formations that only the stores' tests need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.servers import Cluster, Sentinel, binary, cluster, sentinel


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A plain client of a running, empty server."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[Cluster]:
    with cluster(binary("valkey")) as one:
        yield one


@pytest.fixture
def cluster_url(running_cluster: Cluster) -> str:
    """The address of a running, empty cluster of three: redis+cluster://host:port"""
    running_cluster.flush()
    return running_cluster.url


@pytest.fixture(scope="session")
def running_sentinel() -> Iterator[Sentinel]:
    with sentinel(binary("valkey")) as one:
        yield one


@pytest.fixture
def sentinel_url(running_sentinel: Sentinel) -> str:
    """The address of a running, empty master behind a sentinel: redis+sentinel://host:port/service/db"""
    running_sentinel.master.flush()
    return running_sentinel.url
