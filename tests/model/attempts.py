"""One of several processes that all try at once: `python -m tests.model.attempts URL RULE TASKS ATTEMPTS`.

Says "ready", waits for a line, tries, and says how many attempts passed.
"""

from __future__ import annotations

import asyncio
import sys

from ratelimit import Limiter, Policy, Rate, Rule
from ratelimit.plan import RuleLike
from ratelimit.stores.redis import RedisStore

# Windows so long that none ends meanwhile, and no unit comes back.
RULES: dict[str, RuleLike] = {
    "one": Rule("one", Rate(1234, 3660 * 86_400)),
    "four": Policy(
        Rule("global", Rate(1777, 366 * 86_400, None, "sliding"), by="global"),
        Rule("ip", Rate(1500, 366 * 86_400, None, "anchored"), by="ip"),
        Rule("user", Rate(1001, 3660 * 86_400, 1001, "token_bucket"), by="user"),
        Rule("device", Rate(3000, 3660 * 86_400), by=("ip", "device"), action="log"),
    ),
}
TIMEOUT = 30.0
"""Seconds: this is about counts."""


async def attempt(url: str, rule: RuleLike, tasks: int, attempts: int) -> int:
    """How many of so many attempts passed, made by so many tasks at once."""
    limiter = Limiter(RedisStore(url, timeout=TIMEOUT))
    left = iter(range(attempts))

    async def one_task() -> int:
        passed = 0
        for _ in left:
            decision = await limiter.acheck(rule, "u", attributes={"device": "d"})
            assert not decision.degraded
            passed += decision.allowed
        return passed

    await limiter.apeek(rule, "u", attributes={"device": "d"})
    print("ready", flush=True)  # noqa: T201
    await asyncio.to_thread(sys.stdin.readline)
    passed = sum(await asyncio.gather(*(one_task() for _ in range(tasks))))
    await limiter.aclose()
    return passed


if __name__ == "__main__":
    url, rule, tasks, attempts = sys.argv[1:]
    print(asyncio.run(attempt(url, RULES[rule], int(tasks), int(attempts))))  # noqa: T201
