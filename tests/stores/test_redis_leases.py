"""Leases on a real server: what goes over the wire, and that workers together are as exact as one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import redis

from ratelimit import Limiter, Rate, Rule
from ratelimit.keys import stored_key
from ratelimit.outcome import Charge
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import START, FakeClock
from tests.servers import Server
from tests.wire import CountingProxy

PATIENT = 10.0
ROOT = Path(__file__).parents[2]
SIZE = 50
RULE = Rule("leased", "1000/h", by="user", lease=SIZE)
PLACE = stored_key(Charge("rl:leased", "u", Rate.parse("1000/h"), 1, "leased"), START * 1_000_000)
WORKER = """
import sys
from ratelimit import Limiter, Rate, Rule
from ratelimit.testing import FakeClock

limiter = Limiter(sys.argv[1], clock=FakeClock())
rule = Rule("leased", "1000/h", by="user", lease=50)
sys.stdin.readline()
print(sum(bool(limiter.check(rule, "u")) for _ in range(400)))
"""


def worker(url: str) -> Limiter:
    return Limiter(RedisStore(url, timeout=PATIENT), clock=FakeClock())


def counted(client: redis.Redis) -> int:
    return int(client.get(PLACE) or 0)


class TestOnTheWire:
    @pytest.mark.parametrize("calls", [1, 50, 51, 500, 1000])
    def test_n_checks_are_as_many_commands_as_leases(self, calls: int, proxy: CountingProxy) -> None:
        limiter = worker(proxy.url)
        limiter.check(RULE, "warm")
        proxy.reset()
        assert [limiter.check(RULE, "u").remaining for _ in range(calls)] == [999 - n for n in range(calls)]
        assert proxy.counts == {"EVALSHA": -(-calls // SIZE)}
        assert (proxy.round_trips, proxy.connections) == (-(-calls // SIZE), 0)
        limiter.close()

    @pytest.mark.parametrize("calls", [1, 50, 51, 500, 1000])
    async def test_so_they_are_in_an_event_loop(self, calls: int, proxy: CountingProxy) -> None:
        limiter = worker(proxy.url)
        await limiter.acheck(RULE, "warm")
        proxy.reset()
        assert [(await limiter.acheck(RULE, "u")).remaining for _ in range(calls)] == [999 - n for n in range(calls)]
        assert proxy.counts == {"EVALSHA": -(-calls // SIZE)}
        await limiter.aclose()

    async def test_tasks_at_once_share_two_leases(self, proxy: CountingProxy) -> None:
        limiter = worker(proxy.url)
        await limiter.acheck(RULE, "warm")
        proxy.reset()
        decisions = await asyncio.gather(*(limiter.acheck(RULE, "u") for _ in range(400)))
        assert sorted(decision.remaining for decision in decisions) == list(range(600, 1000))
        assert proxy.counts == {"EVALSHA": 2}
        await limiter.aclose()

    def test_threads_at_once_share_leases(self, proxy: CountingProxy) -> None:
        limiter, barrier = worker(proxy.url), threading.Barrier(8)
        limiter.check(RULE, "warm")
        proxy.reset()
        threads = [threading.Thread(target=lambda: (barrier.wait(), limiter.check(RULE, "u"))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert proxy.counts == {"EVALSHA": 1}
        limiter.close()


class TestWorkersTogether:
    def test_in_turn_admit_the_limit_but_for_what_is_stranded(self, redis_url: str, client: redis.Redis) -> None:
        workers = [worker(redis_url) for _ in range(4)]
        admitted = 0
        for turn in range(3000):  # the first one stops early
            which = turn % 4
            admitted += (which != 0 or turn < 40) and bool(workers[which].check(RULE, "u"))
        assert counted(client) == 1000
        assert 1000 - admitted == 40  # it asked ten times, and had taken one lease
        assert sum(bool(workers[0].check(RULE, "u")) for _ in range(50)) == 40
        assert not any(limiter.check(RULE, "u") for limiter in workers)
        for limiter in workers:
            limiter.close()

    def test_of_which_each_asks_once_strand_what_is_promised_and_no_more(
        self, redis_url: str, client: redis.Redis
    ) -> None:
        workers = [worker(redis_url) for _ in range(6)]
        assert all(limiter.check(RULE, "u") for limiter in workers)
        assert counted(client) - 6 == 6 * (SIZE - 1)
        for limiter in workers:
            limiter.close()

    def test_and_threads_of_each_never_admit_more(self, redis_url: str, client: redis.Redis) -> None:
        workers, barrier = [worker(redis_url) for _ in range(3)], threading.Barrier(9)
        found: list[bool] = []

        def ask(limiter: Limiter) -> None:
            barrier.wait()
            for _ in range(200):
                found.append(bool(limiter.check(RULE, "u")))

        threads = [threading.Thread(target=ask, args=(workers[n % 3],)) for n in range(9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counted(client) == 1000
        assert 0 <= 1000 - sum(found) <= 3 * (SIZE - 1)
        for limiter in workers:
            limiter.close()

    async def test_and_tasks_of_each_never_admit_more(self, redis_url: str, client: redis.Redis) -> None:
        workers = [worker(redis_url) for _ in range(3)]

        async def ask(limiter: Limiter) -> int:
            return sum([bool(await limiter.acheck(RULE, "u")) for _ in range(20)])

        found = await asyncio.gather(*(ask(workers[n % 3]) for n in range(90)))
        assert counted(client) == 1000
        assert 0 <= 1000 - sum(found) <= 3 * (SIZE - 1)
        for limiter in workers:
            await limiter.aclose()

    def test_in_processes_never_admit_more(self, redis_url: str, client: redis.Redis) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, redis_url],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(3)
        ]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        admitted = sum(int(process.communicate(timeout=50)[0]) for process in processes)
        assert counted(client) == 1000
        assert 0 <= 1000 - admitted <= 3 * (SIZE - 1)


def test_an_outage_spends_what_is_in_hand(own_server: Server) -> None:
    limiter = worker(own_server.url)
    rule = Rule("leased", "1000/h", by="user", lease=5, on_outage="closed")
    assert limiter.check(rule, "u")
    own_server.stop()
    decisions = [limiter.check(rule, "u") for _ in range(5)]
    assert [(bool(decision), decision.degraded) for decision in decisions] == [(True, False)] * 4 + [(False, True)]
    limiter.close()


def test_a_cluster_takes_leases_too(cluster_url: str) -> None:
    limiters = [worker(cluster_url) for _ in range(2)]
    callers = [f"u{n}" for n in range(6)]
    rule = Rule("leased", "10/h", by="user", lease=5)
    passed = [bool(limiter.check(rule, caller)) for _ in range(10) for limiter in limiters for caller in callers]
    assert sum(passed) == 60
    for limiter in limiters:
        limiter.close()
