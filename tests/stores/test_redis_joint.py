"""Policies in Redis: one command, sent in every way that there is, and what happens when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from ratelimit import Identity, Limiter, Policy, Rate, Rule
from ratelimit.outcome import Charge
from ratelimit.stores import redis_joint
from ratelimit.stores.base import Share
from ratelimit.stores.redis import RedisStore
from ratelimit.stores.redis_joint import JointKeys, script_for
from ratelimit.testing import START, FakeClock
from tests.wire import CountingProxy

PATIENT = 10.0
KINDS = ("9/m", "9/h anchored", "9/h sliding", "9/h burst 9", "9/h leaky burst 9")
EVERY_KIND = Policy(*(Rule(f"r{number}", kind) for number, kind in enumerate(KINDS)))
SEVERAL = Policy(*EVERY_KIND, Rule("ip", "9/m", by="ip", cost=2), Rule("all", "100/s", by="global"))
ANN = Identity("ann", "203.0.113.7")
Check = Callable[..., Any]


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def left(decision: Any) -> list[int]:
    assert not decision.degraded
    return [part.outcome.remaining for part in decision.parts]


async def closing(limiter: Limiter, *checks: tuple[Any, ...]) -> list[Any]:
    found = [await limiter.acheck(*check) for check in checks]
    await limiter.aclose()
    return found


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("policy", [EVERY_KIND, SEVERAL])
def test_a_check_is_one_command(mode: str, policy: Policy, proxy: CountingProxy, fake_clock: FakeClock) -> None:
    limiter = Limiter(RedisStore(proxy.url, timeout=PATIENT, server_time=False), clock=fake_clock)

    async def checks() -> list[Any]:
        found = []
        for _ in range(4):
            found.append(await limiter.acheck(policy, ANN) if mode == "async" else limiter.check(policy, ANN))
            if len(found) == 1:
                proxy.reset()
        await limiter.aclose()
        return found

    found = asyncio.run(checks())
    assert [left(one)[:5] for one in found] == [[8] * 5, [7] * 5, [6] * 5, [5] * 5]
    assert found[3].headers("ietf")
    assert proxy.counts == {"EVALSHA": 3}
    assert proxy.round_trips == 3


@pytest.mark.parametrize("kind", ["client", "decoded", "cluster", "url"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_way_to_a_server_counts_alike(
    kind: str, mode: str, redis_url: str, cluster_url: str, fake_clock: FakeClock
) -> None:
    given: dict[str, Any] = {
        "client": lambda: {
            "client": redis.Redis.from_url(redis_url),
            "async_client": redis.asyncio.Redis.from_url(redis_url),
        },
        "decoded": lambda: {"url": f"{redis_url}?decode_responses=True"},
        "cluster": lambda: {"url": cluster_url},
        "url": lambda: {"url": redis_url},
    }[kind]()

    async def checks() -> list[list[int]]:
        limiter = Limiter(RedisStore(**given, timeout=PATIENT, server_time=False), clock=fake_clock)
        found = []
        for policy in (EVERY_KIND, SEVERAL, EVERY_KIND):
            found.append(left(await limiter.acheck(policy, ANN) if mode == "async" else limiter.check(policy, ANN)))
        await limiter.aclose()
        if kind == "client":
            given["client"].close()
            await given["async_client"].aclose()
        return found

    assert asyncio.run(checks()) == [[8] * 5, [*[7] * 5, 7, 99], [6] * 5]


@pytest.mark.parametrize("kind", KINDS)
def test_each_rule_has_its_own_cost(kind: str, redis_url: str, fake_clock: FakeClock) -> None:
    limiter = Limiter(RedisStore(redis_url, timeout=PATIENT, server_time=False), clock=fake_clock)
    policy = Policy(Rule("cheap", kind), Rule("dear", kind, cost=4))
    assert [left(limiter.check(policy, ANN)) for _ in range(3)] == [[8, 5], [7, 1], [7, 1]]
    limiter.close()


def test_on_a_cluster_several_callers_are_asked_slot_by_slot(cluster_url: str) -> None:
    store = RedisStore(cluster_url, timeout=PATIENT)
    assert store.joint([], one_caller=False) is None
    store.close()


def test_the_servers_clock_counts_where_windows_are_not_numbered(redis_url: str, client: redis.Redis) -> None:
    clock = FakeClock()
    limiter = Limiter(RedisStore(redis_url, timeout=PATIENT), clock=clock)
    assert left(limiter.check(EVERY_KIND, ANN)) == [8] * 5
    assert client.get("rl:r0:{user:ann}:30000000") == b"1"
    seconds, _ = client.time()
    since_us = int(client.get("rl:r1:{user:ann}:a3600").split()[0])
    assert abs(since_us / 1_000_000 - seconds) < 60 < abs(START - seconds)
    clock.advance(60)
    assert left(limiter.check(EVERY_KIND, ANN))[:3] == [8, 7, 7]
    limiter.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_script_that_was_forgotten_is_loaded_and_counts_once(
    mode: str, redis_url: str, client: redis.Redis, fake_clock: FakeClock
) -> None:
    limiter = Limiter(RedisStore(redis_url, timeout=PATIENT, server_time=False), clock=fake_clock)
    for expected in (8, 7):
        client.script_flush()
        (found,) = asyncio.run(closing(limiter, (SEVERAL, ANN))) if mode == "async" else (limiter.check(SEVERAL, ANN),)
        assert left(found)[:5] == [expected] * 5
    limiter.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("number", range(5))
def test_a_key_of_another_kind_is_an_outage_and_nothing_is_written(
    mode: str, number: int, redis_url: str, client: redis.Redis, fake_clock: FakeClock
) -> None:
    limiter = Limiter(RedisStore(redis_url, timeout=PATIENT, server_time=False), clock=fake_clock)
    limiter.check(EVERY_KIND, ANN)
    key = next(key for key in client.scan_iter() if key.startswith(b"rl:r%d:" % number))
    client.flushall()
    client.rpush(key, "x")
    (found,) = (
        asyncio.run(closing(limiter, (EVERY_KIND, ANN))) if mode == "async" else (limiter.check(EVERY_KIND, ANN),)
    )
    assert found.degraded
    assert client.keys() == [key]
    limiter.close()


@pytest.mark.parametrize("kind", ["9/m", "9/h burst 9"])
def test_a_counter_that_is_no_number_is_an_outage_and_nothing_is_written(
    kind: str, redis_url: str, client: redis.Redis, fake_clock: FakeClock
) -> None:
    limiter = Limiter(RedisStore(redis_url, timeout=PATIENT, server_time=False), clock=fake_clock)
    policy = Policy(Rule("first", kind), Rule("window", "9/h"))
    client.set("rl:window:{user:ann}:500000", "many")
    assert limiter.check(policy, ANN).degraded
    assert client.keys() == [b"rl:window:{user:ann}:500000"]
    limiter.close()


@pytest.mark.parametrize("server_time", [True, False])
def test_what_is_said_holds_for_a_second_and_callers_keys_for_a_window(server_time: bool) -> None:
    shares = [Share("rl:g", Rate(9, 60), 1), Share("rl:h", Rate.parse("9/m burst 9"), 2)]
    joint = RedisStore("redis://localhost", server_time=server_time).joint(shares, True)
    assert joint is not None
    now_us, second_us = START * 1_000_000, 1_000_000
    said = [joint.command("u", 1, now_us + us) for us in (0, second_us - 1, second_us, 60 * second_us)]
    assert (said[0] == said[1]) is server_time
    keys = [words[4] for words in (one.split(b"\r\n$") for one in said)]
    assert keys == [b"17\r\nrl:g:{u}:30000000"] * 3 + [b"17\r\nrl:g:{u}:30000001"]
    lives = [words[8] for words in (one.split(b"\r\n$") for one in said)]
    assert lives == [b"6\r\n120000", b"6\r\n120000", b"6\r\n119000", b"6\r\n120000"]


def test_a_server_that_does_not_answer_is_an_outage_for_each_rule_its_own(silent_url: str) -> None:
    limiter = Limiter(RedisStore(silent_url, timeout=0.05))
    policy = Policy(Rule("open", "9/m", on_outage="open"), Rule("closed", "9/m", on_outage="closed"))
    decision = limiter.check(policy, ANN)
    assert (decision.allowed, decision.degraded, decision.rule) == (False, True, "closed")
    limiter.close()


@pytest.fixture(params=["sync", "async"])
def checked(request: pytest.FixtureRequest, proxy: CountingProxy, fake_clock: FakeClock) -> Iterator[Check]:
    """A limiter's check behind a proxy that counts the commands."""
    limiter = Limiter(RedisStore(proxy.url, timeout=PATIENT, server_time=False), clock=fake_clock)
    with asyncio.Runner() as runner:

        def check(*args: Any, **options: Any) -> Any:
            if request.param == "sync":
                return limiter.check(*args, **options)
            return runner.run(limiter.acheck(*args, **options))

        check.limiter = limiter  # type: ignore[attr-defined]
        yield check
        runner.run(limiter.aclose())


@pytest.mark.parametrize("kind", ["3/m", "3/m anchored", "3/m sliding", "3/m burst 3", "3/m leaky burst 3"])
def test_a_denied_policy_is_answered_without_a_trip(
    kind: str, checked: Check, proxy: CountingProxy, fake_clock: FakeClock
) -> None:
    policy = Policy(Rule("few", kind), Rule("many", "100/h"))
    assert [checked(policy, ANN).allowed for _ in range(4)] == [True] * 3 + [False]
    proxy.reset()
    first = checked(policy, ANN)
    fake_clock.advance(0.25)
    later = checked(policy, ANN)
    assert first.retry_after - later.retry_after == pytest.approx(0.25, abs=1e-6)
    assert left(later) == [0, 97]
    assert (later.rule, later.allowed, proxy.round_trips) == ("few", False, 0)
    fake_clock.advance(0.25)
    assert not checked(policy, ANN)
    assert proxy.round_trips == 1


def test_a_denial_is_known_until_the_longest_wait_is_over(
    checked: Check, proxy: CountingProxy, fake_clock: FakeClock
) -> None:
    policy = Policy(Rule("bucket", "10/s burst 1"), Rule("other", "5/s burst 1"), Rule("window", "2/s"))
    assert checked(policy, ANN)
    proxy.reset()
    assert checked(policy, ANN).retry_after == 0.2
    proxy.reset()
    fake_clock.advance(0.15)  # the first rule would pass by now
    known = checked(policy, ANN)
    assert (known.rule, known.retry_after, proxy.round_trips) == ("other", pytest.approx(0.05), 0)
    fake_clock.advance(0.05)
    assert checked(policy, ANN)
    assert proxy.round_trips == 1


def test_a_window_that_ends_meanwhile_is_told_empty(
    checked: Check, proxy: CountingProxy, fake_clock: FakeClock
) -> None:
    policy = Policy(Rule("second", "3/s"), Rule("bucket", "1/m burst 1"))
    fake_clock.advance(0.8)
    assert [checked(policy, ANN).allowed for _ in range(2)] == [True, False]
    proxy.reset()
    assert left(checked(policy, ANN)) == [2, 0]
    fake_clock.advance(0.2)
    assert left(checked(policy, ANN)) == [3, 0]
    assert proxy.round_trips == 0


def test_what_is_cleared_or_costs_less_is_asked_about(checked: Any, proxy: CountingProxy) -> None:
    policy = Policy(Rule("user", "3/m"), Rule("address", "9/m", by="ip"))
    assert checked(policy, ANN, cost=2)
    assert not checked(policy, ANN, cost=2)
    proxy.reset()
    assert not checked(policy, ANN, cost=3)
    assert proxy.round_trips == 0
    assert checked(policy, ANN, cost=1)
    assert not checked(policy, ANN)
    checked.limiter.clear(Rule("address", "9/m", by="ip"), ANN)  # one of the callers of the denied call
    proxy.reset()
    assert not checked(policy, ANN)
    assert proxy.round_trips == 1
    checked.limiter.clear(policy, ANN)
    assert checked(policy, ANN)


def test_a_policy_that_can_never_pass_is_asked_about_now_and_then(
    checked: Check, proxy: CountingProxy, fake_clock: FakeClock
) -> None:
    policy = Policy(Rule("none", "0/m"), Rule("many", "100/h"))
    assert [checked(policy, ANN).retry_after for _ in range(2)] == [None, None]
    proxy.reset()
    assert checked(policy, ANN).retry_after is None
    assert proxy.round_trips == 0
    fake_clock.advance(0.5)
    checked(policy, ANN)
    assert proxy.round_trips == 1


def test_keys_are_those_of_the_general_way() -> None:
    keys = JointKeys(["rl:g", "rl:h~60s"], ["30000000", "t60"])
    for callers in ("u", "a{b}", "é" * 300, ("ip:::1", "")):
        each = (callers,) * 2 if isinstance(callers, str) else callers
        charges = [
            Charge("rl:g", each[0], Rate(1, 60), 1, ""),
            Charge("rl:h~60s", each[1], Rate.parse("1/m burst 5"), 1, ""),
        ]
        assert keys.keys_of(callers) == [f"{charges[0].key}:30000000", f"{charges[1].key}:t60"]


def test_keys_that_are_packed_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_joint, "MAX_KEYS", 10)
    keys = JointKeys(["rl:g"], ["1"])
    assert [keys[f"u{number}"] for number in range(25)][-1] == "$12\r\nrl:g:{u24}:1\r\n"
    assert len(keys) <= 10


def test_a_script_has_only_what_its_rates_need() -> None:
    fixed, bucket = script_for([Rate(1, 60)]), script_for([Rate(1, 60), Rate.parse("1/m burst 5")])
    assert "bucket_lifetime(last" not in fixed.source
    assert "bucket_lifetime(last" in bucket.source
    assert "window_lifetime(kind, first, window, now)\n  local" not in bucket.source
    assert script_for([Rate(9, 9)]) is fixed
