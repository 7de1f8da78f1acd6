"""A wait is exact: refused one microsecond before it ends, allowed when it does, for the same cost."""

from __future__ import annotations

from random import Random

import pytest
import redis

from ratelimit import MemoryStore
from ratelimit.outcome import LOOK, NEVER, TAKE, Charge, Outcome
from ratelimit.rates import Rate
from ratelimit.stores.base import Store
from ratelimit.testing import START
from tests.model.sequences import ALGORITHMS, WINDOWS, random_rate
from tests.model.tape import Tape

IN_MEMORY = 10_000
ON_EACH_SERVER = 1_000
Question = tuple[Charge, int]
"""A charge and when it is asked for."""


def triple(random: Random, key: str, algorithm: str) -> tuple[list[Question], Question, int]:
    """What was taken before, a question that is then refused, and its wait: for a random rate, state and cost."""
    while True:
        store = MemoryStore()
        charge = Charge(key, "u", random_rate(random, algorithm, random.choice(WINDOWS)), 1, "r")
        before = taken(store, random, charge)
        now_us = before[-1][1] + later(random, charge.rate.window_us)
        left = store.apply([charge], now_us, LOOK)[0].remaining
        asked = charge._replace(cost=left + random.choice((1, 1, 2, 7)))
        wait_us = store.apply([asked], now_us, LOOK)[0].retry_after_us
        if wait_us not in (0, NEVER):
            return before, (asked, now_us), wait_us


def taken(store: Store, random: Random, charge: Charge) -> list[Question]:
    """One to five costs that pass, each a part of a window after the last."""
    found: list[Question] = []
    now_us, left = START * 1_000_000 + random.randrange(10**12), charge.rate.capacity
    for _ in range(random.randint(1, 5)):
        one = charge._replace(cost=min(left, random.choice((1, 2, left, random.randint(0, left)))))
        left = store.apply([one], now_us)[0].remaining
        found.append((one, now_us))
        now_us += later(random, charge.rate.window_us)
        left = store.apply([charge], now_us, LOOK)[0].remaining
    return found


def later(random: Random, window_us: int) -> int:
    return random.choice((0, 1, random.randrange(window_us), random.randrange(1 + window_us // 8), window_us))


def answers(store: Store, before: list[Question], question: Question, wait_us: int) -> list[Outcome]:
    """What `store` says to the question at its moment, one microsecond before the wait ends, and when it does."""
    for charge, at_us in before:
        store.apply([charge], at_us, TAKE)
    asked, at_us = question
    return [store.apply([asked], at_us + later_us, LOOK)[0] for later_us in (0, wait_us - 1, wait_us)]


def check(found: list[Outcome], wait_us: int, case: object) -> None:
    waits = [(outcome.allowed, outcome.retry_after_us) for outcome in found]
    assert waits == [(False, wait_us), (False, 1), (True, 0)], case


@pytest.mark.timeout(120)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_waits_are_exact_in_memory(algorithm: str) -> None:
    random = Random(algorithm)
    for _ in range(IN_MEMORY):
        case = triple(random, "u", algorithm)
        check(answers(MemoryStore(), *case), case[2], case)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_waits_are_exact_on_redis(client: redis.Redis, algorithm: str) -> None:
    random = Random(algorithm)
    cases = [triple(random, f"{algorithm}{number}", algorithm) for number in range(ON_EACH_SERVER)]
    tape = Tape(client)
    for case in cases:
        answers(tape.store, *case)
    tape.run()
    for case in cases:
        check(answers(tape.store, *case), case[2], case)


def test_the_first_whole_microsecond_is_meant() -> None:
    """Seven a second: the first of seven units is free after 142,857 and one seventh of a microsecond."""
    store, charge = MemoryStore(), Charge("k", "u", Rate(7, 1, 7, "token_bucket"), 7, "r")
    store.apply([charge], 1_000_000)
    asked = charge._replace(cost=1)
    assert [store.apply([asked], 1_000_000 + us, LOOK)[0].retry_after_us for us in (0, 142_857, 142_858)] == [
        142_858,
        1,
        0,
    ]
