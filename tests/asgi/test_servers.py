"""Real servers on loopback ports, and real clients."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import httpx
from websockets.asyncio.client import connect as websockets_connect
from websockets.exceptions import InvalidStatus

from tests.servers import ServerEnded, free_port, wait_until

ROOT = Path(__file__).parents[2]
APP = "tests.asgi.served:application"
COMMANDS = {
    "uvicorn": ["uvicorn", "--host", "127.0.0.1", "--port", "{port}"],
    "hypercorn": ["hypercorn", "--bind", "127.0.0.1:{port}"],
    "granian": ["granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", "{port}"],
    "daphne": ["daphne", "--bind", "127.0.0.1", "--port", "{port}"],
}
SERVERS = [name for name in COMMANDS if find_spec(name)]
HANDSHAKES = {"uvicorn": 429, "hypercorn": 429, "granian": 429, "daphne": 403}
"""What a refused handshake is answered: 429 by servers that have the extension for it."""

# Not through a proxy that the environment names.
connect = partial(websockets_connect, proxy=None)


@contextmanager
def serving(kind: str, log: Path, store: str = "", app: str = APP) -> Iterator[str]:
    """The address of a server of that kind, while the block lasts."""
    port = free_port()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("RATELIMIT_", "DJANGO_"))}
    environ |= {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")]), "TEST_STORE": store}
    command = [sys.executable, "-m", *(word.format(port=port) for word in COMMANDS[kind]), app]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=output, stderr=output, start_new_session=True
        )  # some have a process for each worker

    def answers() -> bool:
        if process.poll() is not None:
            raise ServerEnded(log.read_text())
        with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as asked:
            asked.request("GET", "/nothing")
            return asked.getresponse().status == 404

    try:
        wait_until(answers, f"{kind} answers")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(params=SERVERS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def served(kind: str, tmp_path: Path) -> Iterator[str]:
    with serving(kind, tmp_path / "log") as url:
        yield url
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.fixture
async def client(served: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served, trust_env=False, timeout=20) as one:
        yield one


def connection(response: httpx.Response) -> Any:
    return response.extensions["network_stream"].get_extra_info("client_addr")


async def test_requests_are_limited_over_one_connection_and_over_many(client: httpx.AsyncClient) -> None:
    found = [await client.get("/limited") for _ in range(10)]
    assert [one.status_code for one in found] == [200] * 4 + [429] * 6
    assert len({connection(one) for one in found}) == 1  # kept alive, through denials too
    assert [one.headers["x-ratelimit-remaining"] for one in found[:4]] == ["3", "2", "1", "0"]
    denied = found[-1]
    shown = {name: value for name, value in denied.headers.items() if name not in ("date", "server", "connection")}
    assert shown == {
        "content-type": "application/json",
        "cache-control": "no-store",
        "access-control-expose-headers": "Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset",
        "retry-after": "60",
        "x-ratelimit-limit": "4",
        "x-ratelimit-remaining": "0",
        "x-ratelimit-reset": "60",
        "content-length": str(len(denied.content)),
    }
    assert denied.json() == {
        "error": {
            "code": "RATE_LIMITED",
            "message": "Limit exceeded: Max 4 requests per minute. Please try again later.",
            "details": {"retry_after_ms": 60000},
            "request_id": None,
        }
    }
    together = await asyncio.gather(*(client.get("/dependency") for _ in range(10)))
    assert sorted(one.status_code for one in together) == [200] * 4 + [429] * 6
    assert sorted(one.json() for one in together if one.status_code == 200) == [0, 1, 2, 3]

    # A denied HEAD has no body, and what comes after it on the connection is not mistaken for one.
    head, after = await client.head("/limited"), await client.get("/openapi.json")
    assert (head.status_code, head.content, after.status_code) == (429, b"", 200)
    assert head.headers["retry-after"] == "60"


async def test_a_body_is_handed_on_whole_and_one_that_is_denied_unread_does_no_harm(client: httpx.AsyncClient) -> None:
    body = bytes(range(256)) * 4_000

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 50_000):
            yield body[start : start + 50_000]

    assert (await client.post("/echo", content=chunks())).content == body
    assert (await client.post("/echo", content=body)).content == body
    assert (await client.post("/echo", content=b"x" * 1_000)).status_code == 429
    assert (await client.get("/openapi.json")).status_code == 200


async def test_the_first_event_arrives_before_the_stream_ends(client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/events") as stream:
        lines = stream.aiter_lines()
        assert stream.headers["x-ratelimit-remaining"] == "0"
        assert await anext(lines) == "data: first"
        # The stream waits for this: had its events been kept back, nobody would have asked.
        assert (await client.post("/release")).status_code == 200
        assert [line async for line in lines if line] == ["data: last"]
    assert (await client.get("/events")).status_code == 429


async def test_handshakes_and_messages_are_limited(kind: str, served: str) -> None:
    url = served.replace("http://", "ws://")
    replies = []
    for _ in range(2):
        async with connect(f"{url}/chat") as socket:
            for text in ("a", "b"):
                await socket.send(text)
                replies.append(await socket.recv())
    assert replies[:3] == ["a", "b", "a"]
    assert json.loads(replies[3]) == {
        "type": "RATE_LIMITED",
        "error": "Rate limit exceeded. Max 3 requests per minute.",
        "retry_after": 60,
    }
    async with connect(f"{url}/guarded"):
        pass
    for path in ("/chat", "/guarded"):
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"{url}{path}"):
                pass
        response = refused.value.response
        assert response.status_code == HANDSHAKES[kind]
        if response.status_code == 429:
            assert response.headers["Retry-After"] == "60"
            assert json.loads(response.body)["error"]["code"] == "RATE_LIMITED"


async def test_two_servers_of_different_kinds_share_a_budget_on_redis(redis_url: str, tmp_path: Path) -> None:
    first, second = SERVERS[0], SERVERS[-1]
    with serving(first, tmp_path / "one", redis_url) as one, serving(second, tmp_path / "other", redis_url) as other:
        async with httpx.AsyncClient(trust_env=False) as client:
            for path in ("/limited", "/dependency"):
                urls = [f"{url}{path}" for url in (one, other)] * 5
                found = await asyncio.gather(*map(client.get, urls))
                assert sorted(answer.status_code for answer in found) == [200] * 4 + [429] * 6


async def test_litestar_on_a_real_server(tmp_path: Path) -> None:
    pytest.importorskip("litestar")
    with serving("uvicorn", tmp_path / "log", app="tests.asgi.served_litestar:application") as url:
        async with httpx.AsyncClient(base_url=url, trust_env=False, headers={"x-verified": "ada"}) as client:
            found = await asyncio.gather(*(client.get("/items") for _ in range(10)))
        assert sorted(answer.status_code for answer in found) == [200] * 2 + [429] * 8
        async with connect(f"{url.replace('http', 'ws')}/chat") as socket:
            assert await socket.recv() == "hello"
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"{url.replace('http', 'ws')}/chat"):
                pass
        assert refused.value.response.status_code == 429
