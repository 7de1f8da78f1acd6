"""Connections for threads: leased, looked at, replaced, bounded, and never read by another command or process."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from redis.exceptions import RedisError, ResponseError

from ratelimit import StoreError
from ratelimit.outcome import Charge
from ratelimit.rates import Rate
from ratelimit.stores import redis_threads
from ratelimit.stores.redis import RedisStore
from ratelimit.stores.redis_clients import sync_client, sync_lines, target
from ratelimit.stores.redis_script import packed
from ratelimit.stores.redis_threads import Line, Lines
from tests.servers import HOST, Sentinel, Server, ask, free_port, wait_until
from tests.wire import CountingProxy

PATIENT = 10.0
ROOT = Path(__file__).parents[2]
WHO = packed("CLIENT", "ID")
WAIT = packed("BLPOP", "gate", 0)
ONE = "return 1"
NAME = "of-these-tests"
FORKED = """
import os, sys, threading
from ratelimit.stores.redis_clients import sync_client, sync_lines, target
from ratelimit.stores.redis_script import packed

to = target(sys.argv[1])
lines = sync_lines(sync_client(to, 10.0, 8), to, 10.0, 8)
who, wait = packed("CLIENT", "ID"), packed("BLPOP", "gate", 0)
waiting = []
thread = threading.Thread(target=lambda: waiting.append(lines.command(wait)))
thread.start()
ids = [lines.command(who)]
while b"blocked_clients:1" not in lines.command(packed("INFO", "clients")):
    pass
reading, writing = os.pipe()
child = os.fork()
if not child:
    with lines._returned:
        os.write(writing, b"%d" % lines.command(who))
    lines.close()
    os._exit(0)
os.waitpid(child, 0)
ids += [int(os.read(reading, 20)), lines.command(who)]
lines.command(packed("RPUSH", "gate", "open"))
thread.join()
lines.close()
print(len(set(ids)), ids[0] == ids[2], waiting)
"""


def lines_of(url: str, timeout: float = PATIENT, most: int = 8) -> Lines:
    to = target(url)
    to.options["client_name"] = NAME
    return sync_lines(sync_client(to, timeout, most), to, timeout, most)


@pytest.fixture
def lines(redis_url: str) -> Iterator[Lines]:
    with closing(lines_of(redis_url)) as lines:
        yield lines


@contextmanager
def in_use(lines: Lines, port: int, many: int = 1) -> Iterator[list[Future[Any]]]:
    """So many threads that wait for their reply, until the block is left or the gate opened."""
    with ThreadPoolExecutor(many) as pool:
        waiting = [pool.submit(lines.command, WAIT) for _ in range(many)]
        wait_until(lambda: waiting_at(port) == many, "the threads wait")
        try:
            yield waiting
        finally:
            open_gate(port, many)


def waiting_at(port: int) -> int:
    """How many connections of `lines_of` wait for their reply."""
    mine = [line for line in ask(port, "CLIENT", "LIST").splitlines() if f" name={NAME} " in line]
    return sum(" flags=b " in line for line in mine)


def open_gate(port: int, many: int = 1) -> None:
    ask(port, "RPUSH", "gate", *["open"] * many)


def hang_up(port: int) -> None:
    """The server closes every connection."""
    ask(port, "CLIENT", "KILL", "TYPE", "normal")


def connected(port: int) -> int:
    """How many connections of `lines_of` the server has."""
    return ask(port, "CLIENT", "LIST").count(f" name={NAME} ")


def echo(lines: Lines, word: str) -> None:
    assert lines.command(packed("ECHO", word)) == word.encode()


class TestLeases:
    def test_a_command_is_one_round_trip(self, proxy: CountingProxy) -> None:
        with closing(lines_of(proxy.url)) as lines:
            echo(lines, "first")
            proxy.reset()
            for number in range(5):
                echo(lines, f"{number}")
            assert (proxy.counts, proxy.round_trips, proxy.connections) == ({"ECHO": 5}, 5, 0)

    def test_threads_that_wait_at_once_have_a_connection_each(self, lines: Lines, redis_server: Server) -> None:
        with in_use(lines, redis_server.port, 5) as waiting:
            echo(lines, "meanwhile")
            assert connected(redis_server.port) == 6
        assert [one.result() for one in waiting] == [[b"gate", b"open"]] * 5
        assert connected(redis_server.port) == 6

    def test_threads_that_come_and_go_share_one(self, proxy: CountingProxy) -> None:
        with closing(lines_of(proxy.url)) as lines:
            for _ in range(20):
                thread = threading.Thread(target=echo, args=(lines, "short"))
                thread.start()
                thread.join()
            assert (proxy.counts["ECHO"], proxy.connections) == (20, 1)

    def test_no_more_connections_than_allowed_and_none_gets_anothers_reply(self, proxy: CountingProxy) -> None:
        def work(name: int) -> None:
            for number in range(50):
                echo(lines, f"{name}-{number}")

        with closing(lines_of(proxy.url, most=3)) as lines, ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
            assert proxy.counts["ECHO"] == 400
            assert proxy.connections <= 3

    def test_at_the_bound_a_thread_waits_for_one_that_is_given_back(
        self, proxy: CountingProxy, redis_server: Server
    ) -> None:
        with closing(lines_of(proxy.url, most=1)) as lines, ThreadPoolExecutor(1) as pool:
            with in_use(lines, redis_server.port):
                second = pool.submit(echo, lines, "second")
                wait_until(lambda: lines._waiting == 1, "the second waits")
                assert not second.done()
            second.result()
            assert (lines._waiting, proxy.connections) == (0, 1)

    @pytest.mark.parametrize("way", ["option", "URL"])
    def test_a_thread_does_not_wait_for_ever(self, way: str, redis_server: Server) -> None:
        url = redis_server.url + ("?max_connections=1&timeout=0.01" if way == "URL" else "")
        with closing(lines_of(url, most=1 if way == "option" else 64)) as lines:
            lines._patience = min(lines._patience, 0.01)
            with in_use(lines, redis_server.port), pytest.raises(ConnectionError, match="all 1 connections are in use"):
                lines.command(WHO)
            echo(lines, "after")

    def test_closing_lets_those_in_use_finish_and_later_commands_open_anew(
        self, lines: Lines, redis_server: Server
    ) -> None:
        with in_use(lines, redis_server.port) as waiting:
            echo(lines, "idle from now on")
            lines.close()
            assert connected(redis_server.port) == 1
        assert waiting[0].result() == [b"gate", b"open"]
        wait_until(lambda: connected(redis_server.port) == 0, "the last one is closed")
        echo(lines, "anew")

    def test_closing_lets_those_in_who_wait(self, redis_server: Server) -> None:
        lines = lines_of(redis_server.url, most=1)
        with ThreadPoolExecutor(1) as pool, in_use(lines, redis_server.port):
            second = pool.submit(echo, lines, "second")
            wait_until(lambda: lines._waiting == 1, "the second waits")
            lines.close()
            second.result()
        lines.close()

    def test_what_is_forgotten_is_closed(self, redis_server: Server) -> None:
        lines = lines_of(redis_server.url)
        echo(lines, "used")
        del lines
        gc.collect()
        wait_until(lambda: connected(redis_server.port) == 0, "it is closed")

    def test_one_that_is_lost_takes_no_place(self, redis_server: Server) -> None:
        with closing(lines_of(redis_server.url, most=1)) as lines:
            first = lines.command(WHO)
            lines._idle.clear()  # as if interrupted between two statements
            gc.collect()
            assert lines.command(WHO) != first


class TestHealth:
    def test_what_the_server_closed_while_idle_is_replaced(
        self, proxy: CountingProxy, redis_server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis_threads, "TRUSTED_SECONDS", -1.0)
        with closing(lines_of(proxy.url)) as lines:
            for _ in range(3):
                echo(lines, "heard")
                hang_up(redis_server.port)
                wait_until(lambda: lines._idle[-1]._is_quiet() is False, "the end has arrived")
            assert (proxy.counts["ECHO"], proxy.connections) == (3, 3)

    def test_what_is_sound_is_kept(self, proxy: CountingProxy, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(redis_threads, "TRUSTED_SECONDS", -1.0)
        with closing(lines_of(proxy.url)) as lines:
            for _ in range(3):
                echo(lines, "heard")
            assert (proxy.counts["ECHO"], proxy.connections) == (3, 1)

    def test_a_server_that_came_back_is_found_again(self, own_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(redis_threads, "TRUSTED_SECONDS", -1.0)
        with closing(lines_of(own_server.url)) as lines:
            echo(lines, "before")
            own_server.stop()
            with pytest.raises(RedisError):
                lines.command(WHO)
            own_server.start()
            echo(lines, "after")

    def test_when_the_server_hangs_up_one_command_fails_and_not_one_for_each_connection(
        self, lines: Lines, redis_server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis_threads, "TRUSTED_SECONDS", 1e6)
        with in_use(lines, redis_server.port, 3):
            pass
        hang_up(redis_server.port)
        with pytest.raises(OSError):  # noqa: PT011 (reset by peer, or closed)
            lines.command(WHO)
        with in_use(lines, redis_server.port, 4) as waiting:
            pass
        assert [one.result() for one in waiting] == [[b"gate", b"open"]] * 4

    def test_a_command_whose_reply_was_lost_is_not_sent_again(self, proxy: CountingProxy) -> None:
        with closing(lines_of(proxy.url)) as lines:
            assert lines.command(packed("INCR", "n")) == 1
            proxy.lose_replies = 1
            with pytest.raises(OSError):  # noqa: PT011 (reset by peer, or closed)
                lines.command(packed("INCR", "n"))
            assert lines.command(packed("INCR", "n")) == 3
            assert proxy.counts["INCR"] == 3

    @pytest.mark.parametrize(("idle", "pings"), [(2.0, 0), (4.0, 1)])
    def test_a_health_check_that_the_url_asks_for(self, idle: float, pings: int, proxy: CountingProxy) -> None:
        with closing(lines_of(f"{proxy.url}?health_check_interval=3")) as lines:
            echo(lines, "first")
            proxy.reset()
            lines._idle[-1].used = monotonic() - idle
            echo(lines, "second")
            assert (proxy.counts["PING"], proxy.counts["ECHO"], proxy.connections) == (pings, 1, 0)

    def test_a_health_check_that_fails_is_a_new_connection(self, proxy: CountingProxy) -> None:
        with closing(lines_of(f"{proxy.url}?health_check_interval=3")) as lines:
            echo(lines, "first")
            proxy.reset()
            proxy.lose_replies = 1
            lines._idle[-1].used = monotonic() - 4
            echo(lines, "second")
            assert (proxy.counts["ECHO"], proxy.connections) == (1, 1)


class TestInterruptions:
    def test_a_reply_that_came_too_late_is_nobodys(self, redis_server: Server) -> None:
        with closing(lines_of(redis_server.url, timeout=0.05)) as lines:
            first = lines.command(WHO)
            with pytest.raises(TimeoutError):
                lines.command(WAIT)
            open_gate(redis_server.port)
            echo(lines, "after")
            assert lines.command(WHO) != first

    def test_a_silent_server_is_an_error_of_the_store(self, silent_url: str) -> None:
        with closing(RedisStore(silent_url, timeout=0.05)) as store, pytest.raises(StoreError, match="Timeout"):
            store.apply([Charge("rl:g", "u", Rate.parse("1/m"), 1, "g")], 1)

    def test_an_interrupted_command_leaves_its_reply_to_nobody(self, lines: Lines, redis_server: Server) -> None:
        def interrupt() -> None:
            wait_until(lambda: waiting_at(redis_server.port) == 1, "it waits")
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            lines.command(WAIT)
        interrupter.join()
        open_gate(redis_server.port)
        echo(lines, "after")

    @pytest.mark.parametrize("closing_too", [False, True])
    def test_whatever_interrupts_it(
        self, closing_too: bool, lines: Lines, redis_server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def exits(*_: Any) -> Any:
            raise SystemExit

        first = lines.command(WHO)
        lines._idle[-1]._recv = exits
        with monkeypatch.context() as patch:
            if closing_too:
                patch.setattr(Line, "close", exits)
            with pytest.raises(SystemExit):
                echo(lines, "lost")
        echo(lines, "after")
        assert lines.command(WHO) != first


class TestErrors:
    def test_an_error_leaves_the_connection(self, lines: Lines) -> None:
        first = lines.command(WHO)
        with pytest.raises(ResponseError, match="NONSENSE"):
            lines.command(packed("NONSENSE"))
        with pytest.raises(ResponseError, match="NOSCRIPT"):
            lines.command(packed("EVALSHA", "0" * 40, 0))
        assert lines.command(WHO) == first

    @pytest.mark.parametrize(("setting", "error"), [("yes", "READONLY"), ("no", "MASTERDOWN")])
    def test_a_server_that_is_no_longer_the_master_is_looked_for_anew(
        self, setting: str, error: str, own_server: Server
    ) -> None:
        with closing(lines_of(own_server.url)) as lines:
            with in_use(lines, own_server.port, 2):
                pass
            before = int(ask(own_server.port, "INFO", "stats").partition("total_connections_received:")[2].split()[0])
            ask(own_server.port, "CONFIG", "SET", "replica-serve-stale-data", setting)
            ask(own_server.port, "REPLICAOF", HOST, free_port())
            with pytest.raises(ResponseError, match=error):
                lines.command(packed("SET", "a", "b") if error == "READONLY" else packed("GET", "a"))
            ask(own_server.port, "REPLICAOF", "NO", "ONE")
            ids = [line.ask(WHO) for line in list(lines._idle)]
            assert len(ids) == 2
            assert min(ids) > before

    @pytest.mark.parametrize(("text", "kept"), [("READONLY no", False), ("WRONGTYPE no", True)])
    def test_an_error_in_the_midst_of_a_reply_may_be_told(self, text: str, kept: bool, lines: Lines) -> None:
        first = lines.command(WHO)
        assert lines.heed(ResponseError(text)) is not kept
        assert (lines.command(WHO) == first) is kept

    def test_after_a_failover_the_sentinel_is_asked(
        self, running_sentinel: Sentinel, sentinel_url: str, own_server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with closing(lines_of(sentinel_url)) as lines:
            lines.command(packed("SET", "a", "b"))
            monkeypatch.setattr(lines._pool.sentinel_manager, "discover_master", lambda _: (HOST, own_server.port))
            ask(running_sentinel.master.port, "REPLICAOF", HOST, own_server.port)
            try:
                with pytest.raises(ResponseError, match="READONLY"):
                    lines.command(packed("SET", "a", "c"))
                lines.command(packed("SET", "a", "d"))
            finally:
                ask(running_sentinel.master.port, "REPLICAOF", "NO", "ONE")
            assert ask(own_server.port, "GET", "a") == "d"

    def test_a_script_is_loaded_and_asked_for_again_in_one_further_round_trip(self, proxy: CountingProxy) -> None:
        digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
        with closing(lines_of(proxy.url)) as lines:
            lines.command(WHO)
            proxy.reset()
            command = packed("EVALSHA", digest, 0)
            assert [lines.scripted(command, ONE) for _ in range(2)] == [1, 1]
            assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 3, "SCRIPT": 1}, 3)
            with pytest.raises(ResponseError, match="unknown command"):
                lines.scripted(packed("NONSENSE"), ONE)

    def test_a_script_that_may_not_be_loaded_is_said_so(self, redis_server: Server) -> None:
        ask(redis_server.port, "ACL", "SETUSER", "weak", "on", ">secret", "~*", "+@all", "-script")
        with closing(lines_of(f"redis://weak:secret@{HOST}:{redis_server.port}")) as lines:
            with pytest.raises(ResponseError, match="NOPERM"):
                lines.scripted(packed("EVALSHA", "0" * 40, 0), ONE)
            echo(lines, "after")
        ask(redis_server.port, "ACL", "DELUSER", "weak")


def test_after_a_fork_nothing_of_before_is_used(lines: Lines) -> None:
    first = lines.command(WHO)
    redis_threads._start_anew()
    assert lines.command(WHO) != first


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_connections_of_its_own(own_server: Server) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, own_server.url]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30).stdout
    assert printed == "2 True [[b'gate', b'open']]\n"
