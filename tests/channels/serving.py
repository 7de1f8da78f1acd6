"""A real server process for an ASGI application, on a free loopback port, ended by the test."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from urllib.request import urlopen

from websockets.asyncio.client import connect as websockets_connect

from tests.servers import ServerEnded

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "uvicorn": ["uvicorn", "--host", "127.0.0.1", "--port", "0", "--lifespan", "off"],
    "daphne": ["daphne", "--bind", "127.0.0.1", "--port", "0"],
    "hypercorn": ["hypercorn", "--bind", "127.0.0.1:0", "--workers", "0"],
}
LISTENING = re.compile(r"(?:[Rr]unning on http://|Listening on TCP address )127\.0\.0\.1:(\d+)")

# Not through a proxy that the environment names.
connect = partial(websockets_connect, proxy=None)


class Served:
    """One server process, and what it has written so far."""

    def __init__(self, kind: str, app: str, log: Path) -> None:
        self.kind = kind
        self.log = log
        path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("RATELIMIT_", "DJANGO_"))}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *COMMANDS[kind], app],
                cwd=ROOT, env={**environ, "PYTHONPATH": path}, stdout=output, stderr=output,
            )  # fmt: skip

    def url(self, path: str) -> str:
        found = LISTENING.search(self.log.read_text())
        assert found is not None
        return f"ws://127.0.0.1:{found[1]}{path}"

    async def gauges(self) -> dict[str, int]:
        with await asyncio.to_thread(urlopen, self.url("/gauges/").replace("ws:", "http:")) as response:
            return dict(json.load(response))

    async def until(self, **gauges: int) -> None:
        """Waits until the gauges say so: a server may tell its application a moment later than the client knows."""
        for _ in range(500):
            found = await self.gauges()
            if gauges.items() <= found.items():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(found)

    def is_listening(self) -> bool:
        if self.process.poll() is not None:
            raise ServerEnded(self.log.read_text())
        return LISTENING.search(self.log.read_text()) is not None

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(10)
