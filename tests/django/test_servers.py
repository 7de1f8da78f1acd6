"""Real servers on loopback ports, and a real client."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("daphne")

from tests.servers import ServerEnded, wait_until

ROOT = Path(__file__).parents[2]
APP = "tests.django.served:application"
WSGI = """
from wsgiref.simple_server import make_server
from tests.django.served import wsgi_application
server = make_server("127.0.0.1", 0, wsgi_application)
print(f"running on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""
COMMANDS = {
    "uvicorn": ["-m", "uvicorn", "--host", "127.0.0.1", "--port", "0", "--lifespan", "off", APP],
    "daphne": ["-m", "daphne", "--bind", "127.0.0.1", "--port", "0", APP],
    "wsgiref": ["-c", WSGI],
}
LISTENING = re.compile(r"(?:running on http://|Listening on TCP address )127\.0\.0\.1:(\d+)")


class Served:
    """One server process, and what it has written so far."""

    def __init__(self, kind: str, log: Path, **environ: str) -> None:
        self.kind = kind
        self.log = log
        path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
        bare = {k: v for k, v in os.environ.items() if not k.startswith(("RATELIMIT_", "DJANGO_"))}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *COMMANDS[kind]],
                cwd=ROOT, env={**bare, "PYTHONPATH": path, **environ}, stdout=output, stderr=output,
            )  # fmt: skip

    def is_listening(self) -> bool:
        if self.process.poll() is not None:
            raise ServerEnded(self.log.read_text())
        return LISTENING.search(self.log.read_text()) is not None

    def ask(self, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        """A response whose body is yet to be read."""
        found = LISTENING.search(self.log.read_text())
        assert found is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)
        connection.request(method, path, headers={"Connection": "close", **headers})
        return connection.getresponse()

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
        with self.ask(path, method, **headers) as response:
            return response.status, response.read()

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def run(kind: str, log: Path, **environ: str) -> Iterator[Served]:
    one = Served(kind, log, **environ)
    try:
        wait_until(one.is_listening, f"{kind} listens")
        yield one
    finally:
        one.end()


@pytest.fixture(params=sorted(COMMANDS))
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    yield from run(request.param, tmp_path / "log")


@pytest.fixture(params=["daphne", "uvicorn"])
def served_async(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    yield from run(request.param, tmp_path / "log")


@pytest.fixture
def on_redis(redis_url: str, tmp_path: Path) -> Iterator[Served]:
    yield from run("uvicorn", tmp_path / "log", TEST_STORE=redis_url)


def test_limits_by_path_and_on_views(served: Served) -> None:
    assert [served.get(path)[0] for path in ("/login", "//login", "/login/", "/log%69n")] == [200, 200, 429, 429]
    for path in ("plain", "coroutine", "Coroutine"):
        assert served.get(f"/{path}") == (200, path.encode())
        assert served.get(f"/{path}")[0] == 429
    with served.ask("/login", **{"X-Request-ID": "req-1"}) as denied:
        body = json.loads(denied.read())
    assert denied.status == 429
    assert {name: denied.headers[name] for name in ("Content-Type", "Retry-After", "Cache-Control", "RateLimit")} == {
        "Content-Type": "application/json",
        "Retry-After": "60",
        "Cache-Control": "no-store",
        "RateLimit": '"path:login";r=0;t=60',
    }
    assert body["error"]["request_id"] == "req-1"
    assert "never awaited" not in served.log.read_text()
    assert "Traceback" not in served.log.read_text()


def test_streams_are_whole_and_have_the_headers(served: Served) -> None:
    with served.ask("/stream") as response:
        assert response.headers["RateLimit-Policy"] == '"path:stream";q=2;w=60'
        assert response.read() == b"part 0\npart 1\npart 2\n"
    assert [served.get("/stream")[0] for _ in range(2)] == [200, 429]


def test_events_come_while_the_view_still_makes_more(served_async: Served) -> None:
    served = served_async
    with served.ask("/events") as response:
        assert response.headers["RateLimit"] == '"path:events";r=1;t=60'
        assert (response.readline(), response.readline()) == (b"data: first\n", b"\n")
        assert served.get("/release") == (200, b"released")
        assert response.read() == b"data: second\n\n"
    assert [served.get("/events")[0] for _ in range(2)] == [200, 429]


def test_a_head_request_has_no_body_and_counts_as_get(served: Served) -> None:
    assert [served.get("/login", "HEAD") for _ in range(3)] == [(200, b""), (200, b""), (429, b"")]
    assert served.get("/login")[0] == 429


def test_on_redis(on_redis: Served) -> None:
    def codes(path: str, times: int) -> list[Any]:
        return [on_redis.get(path)[0] for _ in range(times)]

    assert codes("/login", 3) == [200, 200, 429]
    assert codes("/coroutine", 2) == codes("/plain", 2) == [200, 429]
