"""The tests' own servers and proxy do what the other tests take for granted."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import Server, ServerError, ask, binary, cluster, replica, sentinel, server, wait_until
from tests.wire import CommandReader, CountingProxy

SET = b"*3\r\n$3\r\nset\r\n$1\r\na\r\n$4\r\n\r\n\r\n\r\n"
ROOT = Path(__file__).parent.parent
ABANDON = """
import os, sys
from tests.servers import binary, server
with server(binary("valkey")) as one:
    print(one.pid, flush=True)
    sys.stdin.read()
"""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_answers_on_its_port_and_on_its_socket(redis_server: Server) -> None:
    assert ask(redis_server.port, "SET", "a", "1") == "OK"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(redis_server.socket))
        connection.sendall(b"GET a\r\n")
        assert connection.recv(64) == b"$1\r\n1\r\n"


def test_every_test_gets_an_empty_server(redis_server: Server) -> None:
    assert ask(redis_server.port, "DBSIZE") == "0"


def test_a_restarted_server_has_another_process_the_same_port_and_no_keys(own_server: Server) -> None:
    ask(own_server.port, "SET", "a", "1")
    first = own_server.pid
    own_server.restart()
    assert own_server.pid != first
    assert ask(own_server.port, "GET", "a") == ""


def test_a_stopped_server_is_gone(own_server: Server) -> None:
    own_server.stop()
    assert not is_running(own_server.pid)
    with pytest.raises(ConnectionRefusedError):
        ask(own_server.port, "PING")


def test_a_server_ends_with_the_process_that_started_it() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", ABANDON], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_running(pid)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    wait_until(lambda: not is_running(pid), "the abandoned server ends")


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ServerError, match="nonsense"), server(binary("valkey"), "nonsense 3"):
        pass


def test_a_replica_refuses_writes(redis_server: Server) -> None:
    with replica(redis_server.program, redis_server) as copy, pytest.raises(ServerError, match="READONLY"):
        ask(copy.port, "SET", "a", "1")


def test_a_cluster_sends_a_key_to_its_own_node() -> None:
    with cluster(binary("valkey")) as whole:
        owner = whole.nodes[2]  # slot of "a" is 15495
        with pytest.raises(ServerError, match=f"MOVED 15495 127.0.0.1:{owner.port}"):
            ask(whole.nodes[0].port, "SET", "a", "1")
        assert ask(owner.port, "SET", "a", "1") == "OK"


def test_a_sentinel_knows_its_master() -> None:
    with sentinel(binary("valkey"), "limits") as one:
        found = ask(one.watcher.port, "SENTINEL", "get-master-addr-by-name", "limits")
        assert found == f"127.0.0.1\n{one.master.port}"


def test_commands_are_read_however_their_bytes_arrive() -> None:
    reader = CommandReader()
    one_by_one = [command for byte in SET for command in reader.feed(bytes([byte]))]
    assert one_by_one == [("SET", "a", "\r\n\r\n")]
    assert reader.feed(SET + SET + SET[:9]) == [("SET", "a", "\r\n\r\n")] * 2
    assert reader.feed(SET[9:]) == [("SET", "a", "\r\n\r\n")]


def test_the_proxy_counts_commands_and_round_trips(proxy: CountingProxy) -> None:
    assert ask(proxy.port, "set", "a", 1) == "OK"
    assert ask(proxy.port, "GET", "a") == "1"
    assert proxy.commands == [("SET", "a", "1"), ("GET", "a")]
    assert (proxy.counts, proxy.round_trips, proxy.connections) == ({"SET": 1, "GET": 1}, 2, 2)
    proxy.reset()
    assert (proxy.commands, proxy.round_trips, proxy.connections) == ([], 0, 0)


def test_a_pipeline_is_one_round_trip(proxy: CountingProxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection, connection.makefile("rb") as replies:
        connection.sendall(SET + SET)
        assert [replies.readline(), replies.readline()] == [b"+OK\r\n"] * 2
    assert (proxy.counts, proxy.round_trips) == ({"SET": 2}, 1)


def test_a_lost_reply_is_lost_after_the_command_was_done(proxy: CountingProxy) -> None:
    proxy.lose_replies = 1
    with pytest.raises((ServerError, ConnectionResetError)):
        ask(proxy.port, "INCR", "a")
    assert ask(proxy.port, "GET", "a") == "1"


def test_a_silent_server_accepts_and_says_nothing(silent_url: str) -> None:
    port = int(silent_url.split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=0.05) as connection:
        connection.sendall(SET)
        with pytest.raises(TimeoutError):
            connection.recv(1)
