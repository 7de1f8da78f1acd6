"""What a URL asks of a thread's connection: TLS, a password, a database, a unix socket; with and without hiredis."""

from __future__ import annotations

import select
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from ratelimit.stores import redis_threads
from ratelimit.stores.redis_clients import sync_client, sync_lines, target
from ratelimit.stores.redis_reader import PythonReader
from ratelimit.stores.redis_script import packed
from ratelimit.stores.redis_threads import Lines
from tests.servers import HOST, Server, ask, wait_until

PATIENT = 10.0
WHO = packed("CLIENT", "ID")
INFO = packed("CLIENT", "INFO")


def lines_of(url: str) -> Lines:
    to = target(url)
    return sync_lines(sync_client(to, PATIENT, 8), to, PATIENT, 8)


@contextmanager
def tls_front(port: int, folder: Path) -> Iterator[int]:
    """A port where TLS is spoken, by a server of a passing name, with what listens on `port` behind it."""
    certificate = folder / "certificate"
    names = ["-keyout", str(certificate), "-out", str(certificate), "-subj", "/CN=localhost"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def join(plain: socket.socket) -> None:
        with context.wrap_socket(plain, server_side=True) as tls, socket.create_connection((HOST, port)) as behind:
            other = {tls: behind, behind: tls}
            while True:
                for one in select.select(other, [], [])[0]:
                    if not (received := one.recv(65_536)):
                        return
                    other[one].sendall(received)

    def accept() -> None:
        while (plain := listener.accept()[0]).getpeername() != last.getsockname():
            threading.Thread(target=join, args=(plain,), daemon=True).start()
        plain.close()

    with socket.create_server((HOST, 0)) as listener, socket.socket() as last:
        last.bind((HOST, 0))
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield listener.getsockname()[1]
        finally:
            last.connect(listener.getsockname())
            acceptor.join()


@pytest.mark.parametrize("options", ["", "?protocol=3", "?decode_responses=True", "?client_name=limits"])
@pytest.mark.parametrize("hiredis", [True, False])
def test_replies_are_bytes_whatever_the_url_asks_for(
    options: str, hiredis: bool, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hiredis:
        monkeypatch.setattr(redis_threads, "new_reader", PythonReader)
    with closing(lines_of(f"redis://{HOST}:{redis_server.port}/3{options}")) as lines:
        assert b" db=3 " in lines.command(INFO)


def test_over_a_unix_socket(redis_server: Server) -> None:
    with closing(lines_of(redis_server.socket_url)) as lines:
        assert lines.command(packed("PING")) == b"PONG"


@pytest.mark.parametrize("password", ["wrong", "secret"])
def test_a_password(password: str, redis_server: Server) -> None:
    ask(redis_server.port, "ACL", "SETUSER", "strong", "on", ">secret", "~*", "+@all")
    with closing(lines_of(f"redis://strong:{password}@{HOST}:{redis_server.port}")) as lines:
        for _ in range(2):
            if password == "secret":
                assert b" user=strong " in lines.command(INFO)
            else:
                with pytest.raises(RedisError):
                    lines.command(WHO)
    ask(redis_server.port, "ACL", "DELUSER", "strong")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="nothing here makes a certificate")
def test_over_tls(redis_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_threads, "TRUSTED_SECONDS", -1.0)
    url = f"rediss://{HOST}:{{}}/3?ssl_cert_reqs=none"
    with tls_front(redis_server.port, tmp_path) as port, closing(lines_of(url.format(port))) as lines:
        ids = {lines.command(WHO) for _ in range(3)}
        assert len(ids) == 1
        ask(redis_server.port, "CLIENT", "KILL", "TYPE", "normal")
        wait_until(lambda: lines._idle[-1]._is_quiet() is False, "the end has arrived")
        assert lines.command(WHO) not in ids
        assert b" db=3 " in lines.command(INFO)
