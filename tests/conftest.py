"""Servers for every area's tests. A test that takes `redis_url` runs once for each server program found."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from pytest_django import DjangoDbBlocker

from tests.servers import Server, find_binaries, server
from tests.wire import CountingProxy, counting_proxy, silent_server

pytest_plugins = ["ratelimit.testing"]

BINARIES = find_binaries()


@pytest.fixture(scope="session", autouse=True)
def _old_connections_may_be_closed(django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Channels closes old connections after every message, which pytest-django would take for a query."""
    with django_db_blocker.unblock():
        yield


@pytest.fixture(autouse=True)
def _as_much_is_logged_as_before() -> Iterator[None]:
    """Litestar's applications decide what the whole process logs; a later test counts the lines."""
    root = logging.getLogger()
    before = root.level
    yield
    root.setLevel(before)


@pytest.fixture(scope="session")
def running_servers() -> Iterator[Callable[[str], Server]]:
    """One server of each program for the whole run, started when it is first asked for."""
    with ExitStack() as running:
        yield cache(lambda program: running.enter_context(server(BINARIES[program])))


@pytest.fixture(params=sorted(BINARIES))
def running_server(request: pytest.FixtureRequest, running_servers: Callable[[str], Server]) -> Server:
    return running_servers(request.param)


@pytest.fixture
def redis_server(running_server: Server) -> Server:
    """A running, empty server of each program. Not to be stopped: see `own_server`."""
    running_server.flush()
    return running_server


@pytest.fixture
def redis_url(redis_server: Server) -> str:
    """The address of a running, empty server."""
    return redis_server.url


@pytest.fixture(params=sorted(BINARIES))
def own_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the test's own, to stop and restart at will."""
    with server(BINARIES[request.param]) as one:
        yield one


@pytest.fixture
def proxy(redis_server: Server) -> Iterator[CountingProxy]:
    """A counting proxy in front of a running, empty server."""
    with counting_proxy(redis_server.port) as one:
        yield one


@pytest.fixture
def silent_url() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with silent_server() as port:
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture
def renewed_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of connections are renewed when the test says so, however long it takes."""

    async def sleep(seconds: float) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("ratelimit.renewals.sleep", sleep)
