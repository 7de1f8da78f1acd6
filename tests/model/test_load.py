"""Under load from several processes exactly the limit passes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from ratelimit import Limiter
from ratelimit.stores.redis import RedisStore
from tests.model.attempts import RULES, TIMEOUT

ROOT = Path(__file__).parents[2]
PROCESSES, TASKS, ATTEMPTS = 4, 64, 10_000


def passed(url: str, rule: str) -> list[int]:
    """How many attempts passed in each process; all begin together."""
    words = [sys.executable, "-m", "tests.model.attempts", url, rule, str(TASKS), str(ATTEMPTS // PROCESSES)]
    with ExitStack() as running:
        started = [
            running.enter_context(
                subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(PROCESSES)
        ]
        for process in started:
            running.callback(process.kill)
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [int(process.communicate(timeout=100)[0]) for process in started]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("rule", "limit", "left"), [("one", 1234, [0]), ("four", 1001, [1777 - 1001, 1500 - 1001, 0, 3000 - 1001])]
)
def test_exactly_the_limit_passes(redis_url: str, rule: str, limit: int, left: list[int]) -> None:
    counts = passed(redis_url, rule)
    assert sum(counts) == limit
    assert sum(count > 0 for count in counts) > 1
    limiter = Limiter(RedisStore(redis_url, timeout=TIMEOUT))
    parts = limiter.peek(RULES[rule], "u", attributes={"device": "d"}).parts
    assert [part.outcome.remaining for part in parts] == left
    limiter.close()
