"""What real servers hand over, on a port and on a unix socket, and who a raw request to them counts as."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers import HOST, free_port, wait_until

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
# Ends the whole group when its standard input is closed: a server's workers too, and also if the test run is killed.
HOLD = 'exec 3<&0; log=$1; shift; { cat <&3; kill -9 0; } >/dev/null 2>&1 & exec "$@" <&- 3<&- >"$log" 2>&1'
Start = Callable[[str, Path | None, int], list[str]]


def uvicorn(app: str, uds: Path | None, port: int) -> list[str]:
    place = ["--uds", str(uds)] if uds else ["--port", str(port)]
    return ["uvicorn", "--no-proxy-headers", "--lifespan", "off", *place, app]


def hypercorn(app: str, uds: Path | None, port: int) -> list[str]:
    return ["hypercorn", "--bind", f"unix:{uds}" if uds else f"{HOST}:{port}", app]


def daphne(app: str, uds: Path | None, port: int) -> list[str]:
    return ["daphne", *(["-u", str(uds)] if uds else ["-p", str(port)]), app]


def granian(app: str, uds: Path | None, port: int) -> list[str]:
    kind = "wsgi" if app.endswith(":application") else "asgi"
    place = ["--uds", str(uds)] if uds else ["--port", str(port)]
    return ["granian", "--interface", kind, *place, app]


SERVED: dict[str, tuple[Start, str]] = {
    "WSGI, Django, Granian": (granian, "application"),
    "ASGI, Django, Uvicorn": (uvicorn, "django_asgi"),
    "ASGI, Django, Daphne": (daphne, "django_asgi"),
    "ASGI, Uvicorn": (uvicorn, "plain_asgi"),
    "ASGI, Hypercorn": (hypercorn, "plain_asgi"),
    "ASGI, Granian": (granian, "plain_asgi"),
}
Ask = Callable[..., Any]


@contextmanager
def serving(which: str, uds: Path | None, log: Path, **settings: str) -> Iterator[Ask]:
    """Gives what asks a running server about a raw request: header lines as they are, `name: value`."""
    start, app = SERVED[which]
    port = free_port()
    command, *options = start(f"tests.identity.served:{app}", uds, port)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RATELIMIT_", "DJANGO_"))}
    environment |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "RATELIMIT_EXPLAIN": "true", **settings}
    with ExitStack() as running:
        holder = subprocess.Popen(
            ["sh", "-c", HOLD, "sh", str(log), str(BIN / command), *options],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        running.callback(holder.communicate)  # which closes its input: the server ends
        ask = partial(asked, str(uds) if uds else port)
        wait_until(lambda: answers(ask), f"{which} answers; {log}")
        yield ask


def asked(place: str | int, *lines: str, path: str = "/") -> Any:
    """The explanation of a request with these header lines, sent byte for byte."""
    request = "\r\n".join([f"GET {path} HTTP/1.1", "Host: shop", "Connection: close", *lines, "", ""])
    with socket.socket(socket.AF_UNIX if isinstance(place, str) else socket.AF_INET) as connection:
        connection.settimeout(10)
        connection.connect(place if isinstance(place, str) else (HOST, place))
        connection.sendall(request.encode("latin-1"))
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    assert head.split(b" ")[1] == b"200", head
    if b"transfer-encoding: chunked" in head.lower():
        body = b"".join(body.split(b"\r\n")[1::2])
    return httpx.Response(200, content=body).json()


def answers(ask: Ask) -> bool:
    try:
        return bool(ask())
    except OSError:
        return False


@pytest.mark.parametrize("which", SERVED)
def test_a_server_on_a_port_tells_the_peer_and_the_configured_header(which: str, tmp_path: Path) -> None:
    with serving(which, None, tmp_path / "log", RATELIMIT_TRUSTED_PROXIES="127.0.0.1, 10.0.0.0/8") as ask:
        found = ask(
            "X-Forwarded-For: 192.0.2.66, 203.0.113.7:51344", "X-Forwarded-For: 10.0.0.2", "X-Real-IP: 192.0.2.66"
        )
        assert (found["position"]["peer"], found["position"]["peer_trusted"]) == ("127.0.0.1", True)
        assert found["ip"] == "203.0.113.7"
        assert ask("X-Forwarded-For: ::ffff:203.0.113.7")["ip"] == "203.0.113.7"
        assert ask("x-FORWARDED-for: [2001:db8:1:2:3::4]:443")["ip"] == "2001:db8:1:2::"
        assert ask("Forwarded: for=203.0.113.7")["ip"] == "127.0.0.1"
        if which.startswith("ASGI"):
            for lines in (
                ["X_Forwarded_For: 192.0.2.66"],
                ["X_Forwarded_For: 192.0.2.66", "X-Forwarded-For: 203.0.113.7"],
            ):
                assert ask(*lines)["ip"] == ("203.0.113.7" if len(lines) == 2 else "127.0.0.1")


@pytest.mark.parametrize("which", SERVED)
def test_a_unix_socket_has_no_peer_and_is_trusted_by_its_word(which: str, tmp_path: Path) -> None:
    with serving(
        which,
        tmp_path / "socket",
        tmp_path / "log",
        RATELIMIT_TRUSTED_PROXIES="unix",
        RATELIMIT_CLIENT_HEADER="Forwarded",
    ) as ask:
        found = ask('Forwarded: for=192.0.2.66, FOR="[2001:db8:1:2:3::4]:443";proto=https')
        assert (found["position"]["peer"], found["position"]["peer_trusted"]) == ("unknown", True)
        assert found["ip"] == "2001:db8:1:2::"
        assert ask('Forwarded: for="open', "Forwarded: proto=https;for=203.0.113.7")["ip"] == "203.0.113.7"
        assert ask("Forwarded: for=unknown")["ip"] == ask()["ip"] == "unknown"


@pytest.mark.parametrize("which", ["WSGI, Django, Granian", "ASGI, Uvicorn"])
def test_a_unix_socket_without_a_stated_proxy_is_one_caller(which: str, tmp_path: Path) -> None:
    with serving(which, tmp_path / "socket", tmp_path / "log") as ask:
        found = ask("X-Forwarded-For: 203.0.113.7")
        assert (found["ip"], found["position"]["verdict"]) == ("unknown", "too low")
