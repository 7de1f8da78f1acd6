"""A rule that only logs counts what it would count if it refused, bans included."""

from __future__ import annotations

from random import Random

import pytest
import redis

from ratelimit import Limiter, MemoryStore, Policy, Rule
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import FakeClock
from tests.model.sequences import Step, compare, play, sequence
from tests.model.tape import Tape

IN_MEMORY = 1_000
ON_EACH_SERVER = 300
RATES = (
    *("3/h", "3/h anchored", "5/10m sliding", "30/h burst 4", "30/h leaky"),
    *("2/m; 7/h", "2/m burst 3; 5/h sliding", "2/15m anchored; 5/h"),
)
BANS = ((), (2400,), (300, 1200, 5400))


def both_ways(steps: list[Step]) -> list[list[Step]]:
    """The same sequence with every rule enforced, and with every rule in shadow."""
    return [
        [step._replace(charges=tuple(charge._replace(enforce=enforce) for charge in step.charges)) for step in steps]
        for enforce in (True, False)
    ]


@pytest.mark.timeout(120)
def test_on_its_own_in_memory() -> None:
    for seed in range(IN_MEMORY):
        for steps in both_ways(sequence(Random(seed), "u", rules=1)):
            compare(MemoryStore(), steps, f"seed {seed}, {steps[0].charges[0].enforce}")


@pytest.mark.timeout(120)
def test_on_its_own_on_redis(client: redis.Redis) -> None:
    for seed in range(ON_EACH_SERVER):
        for steps in both_ways(sequence(Random(seed), "u", rules=1)):
            client.flushall()
            tape = Tape(client)
            list(play(tape.store, steps))
            tape.run()
            compare(tape.store, steps, f"seed {seed}, {steps[0].charges[0].enforce}")


class SideBySide:
    """In one policy: whenever the one refuses, the other would."""

    @pytest.mark.parametrize("ban_for", BANS)
    @pytest.mark.parametrize("rate", RATES)
    def test_side_by_side(self, store: MemoryStore | RedisStore, rate: str, ban_for: tuple[int, ...]) -> None:
        random, clock = Random(f"{rate}{ban_for}"), FakeClock()
        limiter = Limiter(store, clock=clock)
        enforcing, logging = (Rule(action, rate, ban_for=ban_for, action=action) for action in ("enforce", "log"))
        policy, alone = Policy(enforcing, logging), Rule("alone", rate, ban_for=ban_for, action="log")
        refused = 0
        for _ in range(60):
            clock.now_us += random.choice((0, 0, 1, 40_000_000, random.randrange(1_800_000_000)))
            cost = random.choice((0, 1, 1, 1, 2, 5))
            together = limiter.check(policy, "u", cost=cost)
            shadow = limiter.check(alone, "u", cost=cost)
            figures = [part.outcome for part in together.parts]
            half = len(figures) // 2
            assert figures[:half] == figures[half:] == [part.outcome for part in shadow.parts]
            assert shadow.allowed
            assert together.allowed == (shadow.shadow_denials == ())
            refused += not together.allowed
        assert 0 < refused < 60


class TestMemory(SideBySide):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


class TestRedis(SideBySide):
    @pytest.fixture
    def store(self, redis_url: str) -> RedisStore:
        return RedisStore(redis_url, timeout=10, server_time=False)
