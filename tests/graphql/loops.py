"""An ASGI application behind Uvicorn in a thread of this process, for clients that are real."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.servers import wait_until
from tests.webserver import WebServer, address, listener


@contextmanager
def served(application: Any) -> Iterator[str]:
    """The address (`127.0.0.1:4711`) of a server that ends with the block."""
    listening = listener()
    server = WebServer(application, lifespan="off", log_level="critical", ws="websockets-sansio")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        wait_until(lambda: server.started, "the server has started")
        yield address(listening)
    finally:
        server.end()
        thread.join()
        listening.close()
