"""The demonstration as a user runs it: its numbers, its exit code, and that it notices a limiter that is wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import httpx
import pytest

from tests.servers import wait_until

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "unified"
# One (protocol, caller, category, asked, allowed) for each line of the table.
EXPECTED = [
    ("HTTP", "anonymous", "AUTH_LOGIN", 6, 5),
    ("HTTP", "anonymous", "READ_HEAVY", 11, 10),
    ("HTTP", "alice", "READ_HEAVY", 21, 20),
    ("GraphQL", "anonymous", "WRITE_MEDIUM", 11, 10),
    ("GraphQL", "alice", "WRITE_MEDIUM", 21, 20),
    ("WebSocket", "anonymous", "WS_HEARTBEAT", 121, 120),
    ("WebSocket", "alice", "WS_HEARTBEAT", 241, 240),
    ("Handshake", "carol", "WS_CONNECT", 101, 100),
    ("MCP", "anonymous", "AI_EXTRACT", 11, 10),
    ("MCP", "alice", "AI_ANALYSIS", 11, 10),
    ("MCP", "carol", "AI_ANALYSIS", 51, 50),
    ("GraphQL", "bob", "AI_QUERY", 41, 40),
    ("WebSocket", "bob", "AI_QUERY", 1, 0),
    ("MCP", "bob", "AI_QUERY", 1, 0),
    ("HTTP", "bob", "AI_QUERY", 1, 0),
    ("MCP", "alice", "AI_QUERY", 10, 10),
    ("WebSocket", "alice", "AI_QUERY", 15, 15),
    ("GraphQL", "alice", "AI_QUERY", 10, 10),
    ("HTTP", "alice", "AI_QUERY", 6, 5),
    ("GraphQL", "alice", "AI_QUERY", 1, 0),
    ("WebSocket", "alice", "AI_QUERY", 1, 0),
    ("MCP", "alice", "AI_QUERY", 1, 0),
    ("WebSocket", "anonymous", "AI_QUERY", 21, 20),
    ("HTTP", "anonymous, lying", "AI_QUERY", 1, 0),
    ("GraphQL", "anonymous, lying", "AI_QUERY", 1, 0),
    ("WebSocket", "anonymous, lying", "AI_QUERY", 1, 0),
    ("MCP", "anonymous, lying", "AI_QUERY", 1, 0),
    ("MCP", "carol", "AI_QUERY", 1, 1),
]
ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "adapters")])}


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env={**ENVIRON, **environ}, capture_output=True, text=True, timeout=100
    )


def rows(printed: str) -> list[list[str]]:
    """The table's cells, without its first line."""
    table = printed.partition("\n\n")[0]
    return [re.split(r"\s{2,}", line) for line in table.splitlines()[1:]]


def assert_every_count(printed: str) -> None:
    expected = [
        [*line[:3], str(line[3]), str(line[4]), str(line[3] - line[4]), "45 s" if line[3] > line[4] else "-", "ok"]
        for line in EXPECTED
    ]
    assert rows(printed) == expected


def test_every_count_is_right_in_memory() -> None:
    finished = run("examples/unified/demo.py")
    assert finished.returncode == 0, finished.stderr
    assert_every_count(finished.stdout)
    assert "24 denials, 24 of them in the server's log." in finished.stdout


def test_every_count_is_right_in_redis_and_other_keys_are_left_alone(redis_url: str) -> None:
    redis = pytest.importorskip("redis")
    with redis.Redis.from_url(redis_url) as client:
        client.set("somebody:else", "here")
        finished = run("examples/unified/demo.py", "--store", redis_url)
        assert finished.returncode == 0, finished.stderr
        assert_every_count(finished.stdout)
        assert client.get("somebody:else") == b"here"
        ours = [key.decode() for key in client.scan_iter() if key != b"somebody:else"]
        assert any(":AI_QUERY:{user:bob}:" in key for key in ours)
        assert {key.partition(":")[0] for key in ours} == {ours[0].partition(":")[0]}
        assert all(0 < client.pttl(key) <= 120_000 for key in ours)


SHORT = """
import sys
from dataclasses import replace
sys.path.insert(0, {example!r})
import demo
demo.PLAN = demo.PLAN[:1]
{change}
sys.exit(demo.main([]))
"""
SETTING = "right = demo.server_environ; demo.server_environ = lambda store: {{**right(store), {name!r}: {value!r}}}"
WRONG = {
    "one too many expected": "demo.PLAN = [replace(demo.PLAN[0], allowed=11)]",
    "one too few expected": "demo.PLAN = [replace(demo.PLAN[0], allowed=9)]",
    "a limiter that is one too generous": SETTING.format(name="RATELIMIT_READ_HEAVY", value="11/m"),
    "a limiter that is one too strict": SETTING.format(name="RATELIMIT_READ_HEAVY", value="9/m"),
    "a limiter that is off": SETTING.format(name="RATELIMIT_DISABLE", value="yes"),
    "denials that are not logged": "demo.DENIAL_LOGGED = 'nothing of the kind'",
}


def run_short(change: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The demonstration with a plan of one step, and with something changed."""
    return run("-c", SHORT.format(example=str(EXAMPLE), change=change), **environ)


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_count_that_is_off_is_an_error(change: str) -> None:
    finished = run_short(change)
    assert finished.returncode == 1
    assert "Not every count is right" in finished.stderr


def test_settings_that_happen_to_be_in_the_environment_change_nothing() -> None:
    finished = run_short("", RATELIMIT_READ_HEAVY="7/m", RATELIMIT_DISABLE="yes")
    assert finished.returncode == 0, finished.stderr
    assert [row[3:6] for row in rows(finished.stdout)] == [["6", "5", "1"], ["11", "10", "1"]]


def test_a_server_that_does_not_start_is_an_error_that_tells_why() -> None:
    finished = run("examples/unified/demo.py", "--store", "redos://localhost")
    assert finished.returncode == 1
    assert "redos" in finished.stderr


@contextmanager
def served() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A demonstration that is left running, and all it has printed."""
    command = [sys.executable, "examples/unified/demo.py", "--serve"]
    demo = subprocess.Popen(command, cwd=ROOT, env=ENVIRON, stdout=subprocess.PIPE, text=True)
    try:
        assert demo.stdout is not None
        yield demo, "".join(takewhile(lambda line: "name=bob" not in line, demo.stdout))
    finally:
        demo.kill()
        demo.communicate()


def test_serve_leaves_the_example_running_until_it_is_interrupted() -> None:
    with served() as (demo, printed):
        url, token = re.search(r"http://[\d.:]+", printed), re.search(r"TOKEN=(\S+)", printed)
        assert url is not None
        assert token is not None
        headers = {"Authorization": f"Bearer {token[1]}"}
        with httpx.Client(base_url=url[0], headers=headers, trust_env=False) as alice:
            answered = alice.get("/ask", params={"question": "why"})
            assert answered.json() == {"answer": "You asked: why"}
            assert '"AI_QUERY";r=39;' in answered.headers["RateLimit"]
        demo.send_signal(signal.SIGINT)
        assert demo.wait(20) == 0
        assert is_refused(url[0])


def test_the_server_ends_when_the_demonstration_is_killed() -> None:
    with served() as (demo, printed):
        url = re.search(r"http://[\d.:]+", printed)
        assert url is not None
        demo.kill()
        demo.wait(20)
        wait_until(lambda: is_refused(url[0]), "the server has ended")


def is_refused(url: str) -> bool:
    try:
        httpx.get(url, trust_env=False)
    except httpx.TransportError as error:  # another one while it is ending
        return isinstance(error, httpx.ConnectError)
    return False
