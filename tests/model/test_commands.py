"""What Redis is told: one command a check, no write when a call is refused but for its ban, a lifetime with every key.

That a key without a lifetime is never left behind is also checked after every command of `Tape`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import redis

from ratelimit import Limiter, Policy, Rate, Rule
from ratelimit.outcome import Charge
from ratelimit.stores.base import Store
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import START, FakeClock
from tests.model.counted import Counted, General, Joined
from tests.model.sequences import Step, play, sequence
from tests.wire import CountingProxy

READS = {"GET", "MGET", "PTTL", "SCARD", "SISMEMBER", "TIME"}
PATIENT = 10.0
KINDS = ("20/h", "30/m anchored", "40/m sliding", "50/m burst 9", "60/m leaky burst 8")
Run = list[list[str]]
"""The commands of one run of the script, in order."""


class Monitor:
    """Everything that a server does."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._marks = 0

    def __enter__(self) -> Monitor:
        self._monitor = self._client.monitor().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._monitor.__exit__(*error)

    def runs(self) -> list[Run]:
        """The runs of scripts since the last time."""
        self._marks += 1
        mark = f"ECHO mark{self._marks}"
        self._client.echo(mark.removeprefix("ECHO "))
        found: list[Run] = []
        while (seen := self._monitor.next_command())["command"] != mark:
            words = seen["command"].split()
            if seen["client_type"] == "lua":
                found[-1].append(words)
            elif words[0] == "EVALSHA":
                found.append([])
        return found


def answered(store: Store, step: Step) -> list[Any]:
    return [outcome for _, found in play(store, [step]) for outcome in found]


def refusing(charges: Sequence[Charge], outcomes: Sequence[Any]) -> bool:
    both = zip(charges, outcomes, strict=True)
    return any(charge.enforce and not outcome.allowed for charge, outcome in both)


def writes(run: Run) -> Iterator[list[str]]:
    return (words for words in run if words[0] not in READS)


def lasting(written: list[Run]) -> list[Run]:
    """What was written until a key was to live for less than a second: the server may have forgotten that one or not."""
    ends = (number for number, run in enumerate(written, 1) if any(lifetime_ms(words) < 1000 for words in run))
    return written[: next(ends, None)]


def lifetime_ms(words: list[str]) -> int:
    place = words.index("PX") + 1 if "PX" in words else 2 if words[0] == "PEXPIRE" else None
    return 1000 if place is None else int(words[place])


def test_a_refused_call_writes_nothing_but_its_ban(client: redis.Redis, redis_url: str) -> None:
    store = RedisStore(redis_url, timeout=PATIENT, server_time=False)
    refused = bans = 0
    with Monitor(client) as monitor:
        for seed in range(150):
            steps = [step for step in sequence(Random(seed), f"u{seed}") if step.expected]
            found = [answered(store, step) for step in steps]
            runs = [run for run in monitor.runs() if run]
            for step, outcomes, run in zip(steps, found, runs, strict=True):
                if step.what == "look":
                    assert not list(writes(run)), seed
                elif refusing(step.charges, outcomes):
                    refused += 1
                    told = list(writes(run))
                    bans += len(told) > 0
                    for name, key, *_ in told:
                        banning = [charge for charge in step.charges if charge.ban_key]
                        assert (name, key) in {("SET", charge.ban_key) for charge in banning} or (
                            name == "DEL" and any(key.startswith(charge.key) for charge in banning)
                        ), seed
    store.close()
    assert refused > 400
    assert bans > 100


@pytest.mark.parametrize(("kind", "rules"), [(Counted, 1), (Joined, None)])
def test_a_check_that_a_counter_refuses_writes_nothing(
    client: redis.Redis, redis_url: str, kind: type[General], rules: int | None
) -> None:
    store = kind(RedisStore(redis_url, timeout=PATIENT, server_time=False))
    refused = 0
    with Monitor(client) as monitor:
        for seed in range(150):
            steps = [step for step in sequence(Random(seed), f"u{seed}", rules=rules, plain=True) if step.expected]
            found = [answered(store, step) for step in steps]
            runs = [run for run in monitor.runs() if run]
            for step, outcomes, run in zip(steps, found, runs, strict=True):
                if refusing(step.charges, outcomes):
                    refused += 1
                    assert not list(writes(run)), seed
    store.close()
    assert refused > 400


@pytest.mark.parametrize(("kind", "rules"), [(Counted, 1), (Joined, None)])
def test_counters_write_what_the_general_script_writes(
    client: redis.Redis, redis_url: str, kind: type[General], rules: int | None
) -> None:
    store = RedisStore(redis_url, timeout=PATIENT, server_time=False)
    told = 0
    with Monitor(client) as monitor:
        for seed in range(150):
            steps = sequence(Random(seed), f"u{seed}", rules=rules, plain=True)
            written = []
            for wrapped in (General(store), kind(store)):
                for step in steps:
                    answered(wrapped, step)
                written.append([list(writes(run)) for run in monitor.runs() if run])
                client.flushall()
            general, counted = map(lasting, written)
            assert general == counted, seed
            told += sum(map(len, general))
    store.close()
    assert told > 1000


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_without_a_lifetime_is_given_one_by_its_counter(client: redis.Redis, redis_url: str, kind: str) -> None:
    store, rate = RedisStore(redis_url, timeout=PATIENT, server_time=False), Rate.parse(kind)
    now_us = START * 1_000_000
    store.counter("rl:g", rate).take("u", 5, now_us)
    (key,) = client.keys()
    lifetime = client.pttl(key)
    for asked, cost in ((rate, 1), (rate, 1000), (replace(rate, limit=0), 1)):
        assert client.persist(key)
        store.counter("rl:g", asked).take("u", cost, now_us)
        assert 0 < client.pttl(key) <= 7_200_000
    assert client.delete(key)
    store.counter("rl:g", rate).take("u", 5, now_us)
    assert client.pexpire(key, lifetime // 2)
    store.counter("rl:g", replace(rate, limit=0)).take("u", 1, now_us)
    assert client.pttl(key) <= lifetime // 2
    store.close()


def test_keys_without_a_lifetime_are_given_one_by_a_joint_counter(client: redis.Redis, redis_url: str) -> None:
    limiter = Limiter(RedisStore(redis_url, timeout=PATIENT, server_time=False), clock=FakeClock())
    policy = Policy(*(Rule(f"r{number}", kind) for number, kind in enumerate(KINDS)))
    assert limiter.check(policy, "u", cost=5)
    lives = {key: client.pttl(key) for key in client.scan_iter()}
    assert len(lives) == len(KINDS)
    for cost in (1, 1000):
        assert all(client.persist(key) for key in lives)
        assert limiter.check(policy, "u", cost=cost).allowed == (cost == 1)
        assert all(0 < client.pttl(key) <= 7_200_000 for key in lives)
    for key, life in lives.items():
        assert client.pexpire(key, life // 2)
    assert not limiter.check(policy, "u", cost=1000)
    assert all(client.pttl(key) <= life // 2 for key, life in lives.items())
    limiter.close()


def test_every_write_of_a_key_brings_its_lifetime(client: redis.Redis, redis_url: str) -> None:
    store = RedisStore(redis_url, timeout=PATIENT, server_time=False)
    with Monitor(client) as monitor:
        for seed in range(100):
            steps = [step for step in sequence(Random(seed), f"u{seed}") if step.what != "clear"]
            for step in steps:
                answered(store, step)
            for run in monitor.runs():
                lives = {words[1] for words in run if words[0] == "PTTL"}
                for name, key, *rest in writes(run):
                    if name == "SET":
                        assert rest[-2] == "PX", seed
                        assert int(rest[-1]) > 0, seed
                    elif name in ("INCRBY", "SADD"):
                        assert key in lives, seed
                    else:
                        assert name in ("PEXPIRE", "DEL"), seed
    assert [key for key in client.scan_iter(count=1000) if client.pttl(key) == -1] == []
    store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_found_without_a_lifetime_is_given_one(client: redis.Redis, redis_url: str, kind: str) -> None:
    limiter = Limiter(RedisStore(redis_url, timeout=PATIENT, server_time=False), clock=FakeClock())
    rate = Rate.parse(kind)
    limiter.check(rate, "u", cost=5)
    (key,) = client.keys()
    for asked, cost in ((rate, 1), (rate, 1000), (replace(rate, limit=0), 1)):
        assert client.persist(key)
        limiter.check(asked, "u", cost=cost)
        assert 0 < client.pttl(key) <= 7_200_000
    limiter.close()


@pytest.mark.parametrize("bans", [(), (5, 60)])
@pytest.mark.parametrize("server_time", [True, False])
def test_a_policy_is_one_command_whatever_its_length(
    proxy: CountingProxy, server_time: bool, bans: tuple[int, ...]
) -> None:
    limiter = Limiter(RedisStore(proxy.url, timeout=PATIENT, server_time=server_time), clock=FakeClock())
    rules = [Rule(f"r{number}", KINDS[number % len(KINDS)], ban_for=bans) for number in range(24)]
    for length in (1, 2, 4, 8, 24):  # the server is told the scripts
        limiter.check(Policy(*rules[:length]), "warm")
        limiter.peek(Policy(*rules[:length]), "warm")
    for length in (1, 2, 4, 8, 24):
        policy = Policy(*rules[:length])
        proxy.reset()
        decisions = [limiter.check(policy, f"u{length}", cost=cost) for cost in (1, 0, 20)]
        decisions.append(limiter.peek(policy, f"u{length}"))
        assert [decision.allowed for decision in decisions] == [True, True, False, not bans]
        assert all(decision.headers("ietf") for decision in decisions)
        assert proxy.counts == {"EVALSHA": 4}
        assert proxy.round_trips == 4
    proxy.reset()
    with limiter.reserve(Policy(*rules), "v") as reservation:
        reservation.settle(5)
    limiter.clear(Policy(*rules), "v")
    assert proxy.counts == {"EVALSHA": 2, "DEL": 1}
    assert proxy.round_trips == 3
    limiter.close()
