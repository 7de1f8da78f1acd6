"""Serves the example on a loopback port, and says on the first line of its output which one.

`python examples/unified/server.py [--port 8000] [--frozen] [--with-parent]`
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from typing import Any

import uvicorn
from asgi import application

from ratelimit import Limiter, set_limiter

HOST = "127.0.0.1"
INTO_THE_MINUTE = 15


def frozen_limiter() -> Limiter:
    """A limiter whose clock stands still, so that no minute ends in the middle of a demonstration."""
    now_us = (int(time.time()) // 60 * 60 + INTO_THE_MINUTE) * 1_000_000
    return Limiter(clock=lambda: now_us)


class Server(uvicorn.Server):
    """Uvicorn that says where it listens, as soon as it does."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(f"http://{HOST}:{self.servers[0].sockets[0].getsockname()[1]}", flush=True)

    def end_with_parent(self) -> None:
        """Stop when the other end of our input is closed: also when whoever started us was killed."""
        threading.Thread(target=self._wait_for_end_of_input, daemon=True).start()

    def _wait_for_end_of_input(self) -> None:
        sys.stdin.buffer.read()
        self.should_exit = True


def main() -> None:
    options = argparse.ArgumentParser(description="Serve the example.")
    options.add_argument("--port", type=int, default=0, help="a free one unless given")
    options.add_argument("--frozen", action="store_true", help="hold the limiter's clock still")
    options.add_argument("--with-parent", action="store_true", help="end when the standard input is closed")
    chosen = options.parse_args()
    if chosen.frozen:
        set_limiter(frozen_limiter())
    config = uvicorn.Config(
        application,
        host=HOST,
        port=chosen.port,
        # Uvicorn would believe X-Forwarded-For of anybody on this machine. Whom to believe is the limiter's setting.
        proxy_headers=False,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=3,
    )
    server = Server(config)
    if chosen.with_parent:
        server.end_with_parent()
    server.run()


if __name__ == "__main__":
    main()
