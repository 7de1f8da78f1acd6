"""Every store answers as the reference model does: whether it is allowed, what remains, the waits, the bans."""

from __future__ import annotations

from random import Random

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratelimit import MemoryStore
from tests.model.counted import Counted, Joined
from tests.model.sequences import ALGORITHMS, compare, play, sequence
from tests.model.tape import Tape

IN_MEMORY = 10_000
ON_EACH_SERVER = 2_000


@pytest.mark.timeout(300)
def test_memory_answers_as_the_model_does() -> None:
    for seed in range(IN_MEMORY):
        compare(MemoryStore(), sequence(Random(seed), "u"), f"seed {seed}")


@pytest.mark.timeout(300)
def test_counters_in_memory_answer_as_the_model_does() -> None:
    counted = 0
    for seed in range(IN_MEMORY):
        store = Counted(MemoryStore())
        compare(store, sequence(Random(seed), "u", rules=1, plain=True), f"seed {seed}")
        counted += store.counted
    assert counted > 9 * IN_MEMORY


@pytest.mark.timeout(300)
def test_redis_answers_as_the_model_does(client: redis.Redis) -> None:
    for seed in range(IN_MEMORY, IN_MEMORY + ON_EACH_SERVER):
        steps = sequence(Random(seed), f"u{seed}")
        tape = Tape(client)
        list(play(tape.store, steps))
        tape.run()
        compare(tape.store, steps, f"seed {seed}")


@pytest.mark.timeout(300)
def test_counters_answer_as_the_model_does(client: redis.Redis) -> None:
    counted = 0
    for seed in range(ON_EACH_SERVER):
        steps = sequence(Random(seed), f"u{seed}", rules=1, plain=True)
        tape = Tape(client)
        store = Counted(tape.store)
        list(play(store, steps))
        tape.run()
        compare(store, steps, f"seed {seed}")
        counted += store.counted
    assert counted > 10 * ON_EACH_SERVER


@pytest.mark.timeout(300)
def test_joint_counters_in_memory_answer_as_the_model_does() -> None:
    counted = 0
    for seed in range(IN_MEMORY):
        store = Joined(MemoryStore())
        compare(store, sequence(Random(seed), "u", plain=True), f"seed {seed}")
        counted += store.counted
    assert counted > 5 * IN_MEMORY


@pytest.mark.timeout(300)
def test_joint_counters_answer_as_the_model_does(client: redis.Redis) -> None:
    counted = 0
    for seed in range(ON_EACH_SERVER):
        steps = sequence(Random(seed), f"u{seed}", plain=True)
        tape = Tape(client)
        store = Joined(tape.store)
        list(play(store, steps))
        tape.run()
        compare(store, steps, f"seed {seed}")
        counted += store.counted
    assert counted > 5 * ON_EACH_SERVER


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(random=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_each_algorithm_answers_as_the_model_does(algorithm: str, random: Random) -> None:
    steps = sequence(random, "u", [algorithm])
    compare(MemoryStore(), steps, algorithm)
    compare(Counted(MemoryStore()), steps, algorithm)
    compare(Joined(MemoryStore()), steps, algorithm)
