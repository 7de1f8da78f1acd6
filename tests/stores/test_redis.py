"""The Redis store against real servers: conformance, the wire, lifetimes, forgotten scripts, outages."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest
import redis

from ratelimit import ConfigurationError, Limiter, Rate, StoreError
from ratelimit.outcome import Charge
from ratelimit.stores.redis import RedisStore
from ratelimit.stores.redis_clients import target
from ratelimit.testing import FakeClock, PlacesConformance, StoreConformance
from tests.servers import Server, replica
from tests.wire import CountingProxy

PATIENT = 10.0
"""Seconds: tests of counts must not become tests of this machine's speed."""
TWO_A_MINUTE = Rate.parse("2/m")


class TestRedisStore(StoreConformance, PlacesConformance):
    @pytest.fixture
    def store(self, redis_url: str) -> Iterator[RedisStore]:
        store = RedisStore(redis_url, timeout=PATIENT, server_time=False)
        yield store
        store.close()


class TestRedisStoreOverAUnixSocket(StoreConformance, PlacesConformance):
    @pytest.fixture
    def store(self, redis_server: Server) -> Iterator[RedisStore]:
        store = RedisStore(redis_server.socket_url, timeout=PATIENT, server_time=False)
        yield store
        store.close()


@pytest.fixture
def redis_limiter(redis_url: str, fake_clock: FakeClock) -> Iterator[Limiter]:
    limiter = Limiter(RedisStore(redis_url, timeout=PATIENT, server_time=False), clock=fake_clock)
    yield limiter
    limiter.close()


class TestOnTheWire:
    def test_a_sync_check_is_one_command(self, proxy: CountingProxy, fake_clock: FakeClock) -> None:
        limiter = Limiter(RedisStore(proxy.url, timeout=PATIENT, server_time=False), clock=fake_clock)
        limiter.check(Rate.parse("1/s; 9/m"), "another")
        proxy.reset()
        decisions = [limiter.check(Rate.parse("2/s; 3/m; 4/h"), "u") for _ in range(3)]
        assert [d.allowed for d in decisions] == [True, True, False]
        assert [d.headers("ietf")["RateLimit"] for d in decisions][-1] == (
            '"default-1s";r=0;t=1, "default-60s";r=1;t=60, "default-3600s";r=2;t=3600'
        )
        assert proxy.counts == {"EVALSHA": 3}
        assert proxy.round_trips == 3
        limiter.close()

    @pytest.mark.parametrize("rate", ["9/m", "9/m anchored", "9/m sliding", "9/m burst 9"])
    def test_a_check_of_a_plain_rate_is_one_command(
        self, rate: str, proxy: CountingProxy, fake_clock: FakeClock
    ) -> None:
        limiter = Limiter(RedisStore(proxy.url, timeout=PATIENT, server_time=False), clock=fake_clock)
        limiter.check(Rate.parse(rate), "another")
        proxy.reset()
        assert [limiter.check(Rate.parse(rate), "u", cost=5).allowed for _ in range(2)] == [True, False]
        assert proxy.counts == {"EVALSHA": 2}
        assert proxy.round_trips == 2
        assert not limiter.check(Rate.parse(rate), "u", cost=5)  # known already
        assert proxy.round_trips == 2
        limiter.close()

    def test_an_async_check_is_one_command(self, proxy: CountingProxy, fake_clock: FakeClock) -> None:
        limiter = Limiter(RedisStore(proxy.url, timeout=PATIENT, server_time=False), clock=fake_clock)

        async def three() -> None:
            await limiter.acheck(Rate.parse("1/s; 9/m"), "another")
            await limiter.apeek(Rate.parse("1/s; 9/m"), "another")
            proxy.reset()
            for _ in range(3):
                await limiter.acheck(Rate.parse("2/s; 3/m"), "u")
            await limiter.apeek(Rate.parse("2/s; 3/m"), "u")
            await limiter.aclose()

        asyncio.run(three())
        assert proxy.counts == {"EVALSHA": 4}
        assert proxy.round_trips == 4

    def test_peek_and_clear_are_one_command_each(self, proxy: CountingProxy, fake_clock: FakeClock) -> None:
        limiter = Limiter(RedisStore(proxy.url, timeout=PATIENT, server_time=False), clock=fake_clock)
        limiter.peek("AI_QUERY", "u")
        proxy.reset()
        limiter.peek("AI_QUERY", "u")
        limiter.clear("AI_QUERY", "u")
        assert proxy.counts == {"EVALSHA": 1, "DEL": 1}
        limiter.close()

    def test_nothing_is_sent_before_the_first_check(self, proxy: CountingProxy) -> None:
        Limiter(proxy.url).close()
        assert proxy.connections == 0

    @pytest.mark.parametrize("mode", ["sync", "async"])
    def test_a_script_whose_reply_was_lost_is_not_sent_again(
        self, mode: str, proxy: CountingProxy, fake_clock: FakeClock, client: redis.Redis
    ) -> None:
        limiter = Limiter(RedisStore(proxy.url, timeout=PATIENT, server_time=False), clock=fake_clock)

        async def lost() -> None:
            for _ in range(2):
                assert await limiter.acheck("AI_QUERY", "u") if mode == "async" else limiter.check("AI_QUERY", "u")
                proxy.reset()
                proxy.lose_replies = 1 - proxy.lose_replies
            await limiter.aclose()

        asyncio.run(lost())
        assert client.get(b"rl:AI_QUERY:{u}:30000000") == b"2"


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("rate", ["2/m", "2/m burst 2", "2/m sliding", "2/m; 9/h"])
def test_what_is_no_count_under_a_key_is_an_outage(
    mode: str, rate: str, redis_limiter: Limiter, client: redis.Redis
) -> None:
    """A key that something else wrote."""
    for key in ("30000000", "t60", "s60"):
        client.rpush(f"rl:default:{{u}}:{key}", "x")

    async def found() -> bool:
        assert not (await redis_limiter.acheck(Rate.parse(rate), "v")).degraded
        decision = await redis_limiter.acheck(Rate.parse(rate), "u")
        await redis_limiter.aclose()
        return decision.degraded

    if mode == "async":
        assert asyncio.run(found())
    else:
        assert redis_limiter.check(Rate.parse(rate), "u").degraded
        assert not redis_limiter.check(Rate.parse(rate), "v").degraded


class TestLifetimes:
    def test_every_key_has_one_of_at_most_two_windows(self, redis_limiter: Limiter, client: redis.Redis) -> None:
        redis_limiter.check("AI_QUERY", "user:42")
        redis_limiter.check(Rate.parse("1/s; 10/m"), "user:42", group="g")
        ttl = {key.decode(): client.pttl(key) for key in client.scan_iter()}
        assert sorted(ttl) == [
            *("rl:AI_QUERY:{user:42}:30000000", "rl:g:{user:42}:1800000000", "rl:g~60s:{user:42}:30000000"),
        ]
        assert 0 < ttl["rl:g:{user:42}:1800000000"] <= 2_000
        assert 60_000 < ttl["rl:AI_QUERY:{user:42}:30000000"] <= 120_000

    def test_a_second_call_does_not_lengthen_it(
        self, redis_limiter: Limiter, client: redis.Redis, fake_clock: FakeClock
    ) -> None:
        redis_limiter.check("AI_QUERY", "u")
        client.pexpire(b"rl:AI_QUERY:{u}:30000000", 45_000)
        fake_clock.advance(1)
        redis_limiter.check("AI_QUERY", "u")
        assert 0 < client.pttl(b"rl:AI_QUERY:{u}:30000000") <= 45_000

    @pytest.mark.parametrize("calls", [1, 2])
    def test_a_key_found_without_one_is_healed(
        self, calls: int, redis_limiter: Limiter, client: redis.Redis, fake_clock: FakeClock
    ) -> None:
        for _ in range(calls):
            redis_limiter.check(TWO_A_MINUTE, "u")
        client.persist(b"rl:default:{u}:30000000")
        assert bool(redis_limiter.check(TWO_A_MINUTE, "u")) is (calls == 1)
        assert 0 < client.pttl(b"rl:default:{u}:30000000") <= 120_000
        fake_clock.advance(60)
        assert redis_limiter.check(TWO_A_MINUTE, "u")

    def test_a_denial_writes_nothing(self, redis_limiter: Limiter, client: redis.Redis) -> None:
        assert not redis_limiter.check(TWO_A_MINUTE, "u", cost=3)
        assert not redis_limiter.check(Rate.parse("0/m"), "u")
        assert not redis_limiter.peek(TWO_A_MINUTE, "u", cost=3)
        assert client.dbsize() == 0

    def test_a_cost_of_zero_writes_nothing(self, redis_limiter: Limiter, client: redis.Redis) -> None:
        assert redis_limiter.check(TWO_A_MINUTE, "u", cost=0)
        assert client.dbsize() == 0


class TestForgottenScripts:
    @pytest.mark.parametrize("forget", ["SCRIPT FLUSH", "FLUSHALL"])
    @pytest.mark.parametrize("mode", ["sync", "async"])
    def test_a_script_is_loaded_again_and_counts_once(
        self, forget: str, mode: str, redis_limiter: Limiter, client: redis.Redis
    ) -> None:
        async def checks() -> list[bool]:
            passed: list[bool] = []
            for _ in range(3):
                check = redis_limiter.acheck(TWO_A_MINUTE, "u") if mode == "async" else None
                passed.append(bool(await check if check else redis_limiter.check(TWO_A_MINUTE, "u")))
                client.execute_command("SCRIPT FLUSH")
                if forget == "FLUSHALL":
                    client.execute_command("FLUSHALL")
                assert redis_limiter.peek(TWO_A_MINUTE, "u").remaining in (0, 1, 2)
                client.execute_command("SCRIPT FLUSH")
            await redis_limiter.aclose()
            return passed

        assert asyncio.run(checks()) == ([True, True, False] if forget == "SCRIPT FLUSH" else [True, True, True])


class TestOutages:
    @pytest.mark.parametrize("fail_open", [True, False])
    @pytest.mark.parametrize("mode", ["sync", "async"])
    def test_a_silent_server_is_answered_by_the_policy(self, fail_open: bool, mode: str, silent_url: str) -> None:
        limiter = outage_limiter(silent_url, fail_open)
        decision = limiter.check("AI_QUERY", "u") if mode == "sync" else asyncio.run(closing(limiter))
        assert (decision.allowed, decision.degraded) == (fail_open, True)
        limiter.close()

    def test_a_silent_server_does_not_hold_up_the_event_loop(self, silent_url: str) -> None:
        limiter = outage_limiter(silent_url, True)

        async def main() -> int:
            ticks = 0

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0)
                    ticks += 1

            ticking = asyncio.create_task(tick())
            decisions = await asyncio.gather(*(limiter.acheck("AI_QUERY", "u") for _ in range(50)))
            ticking.cancel()
            await limiter.aclose()
            assert all(decision.degraded for decision in decisions)
            return ticks

        # Were the loop blocked for the timeout, the ticking task would have run a handful of times.
        assert asyncio.run(main()) > 200

    def test_a_refused_connection_is_answered_by_the_policy_and_recovery_counts_again(
        self, own_server: Server, fake_clock: FakeClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        limiter = Limiter(RedisStore(own_server.url, timeout=PATIENT, server_time=False), clock=fake_clock)
        assert limiter.check(TWO_A_MINUTE, "u").remaining == 1
        own_server.stop()
        assert [limiter.check(TWO_A_MINUTE, "u").degraded for _ in range(3)] == [True] * 3
        own_server.restart()
        assert limiter.check(TWO_A_MINUTE, "u").remaining == 1
        assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
        assert "3 checks were decided without it" in caplog.text
        limiter.close()

    def test_a_read_only_replica_is_an_outage(self, own_server: Server, fake_clock: FakeClock) -> None:
        with replica(own_server.program, own_server) as readonly:
            limiter = Limiter(RedisStore(readonly.url, timeout=PATIENT, server_time=False), clock=fake_clock)
            assert limiter.check("AI_QUERY", "u").degraded
            limiter.close()

    def test_a_server_out_of_memory_is_an_outage(self, own_server: Server, fake_clock: FakeClock) -> None:
        limiter = Limiter(RedisStore(own_server.url, timeout=PATIENT, server_time=False), clock=fake_clock)
        with redis.Redis.from_url(own_server.url) as client:
            client.config_set("maxmemory", "1")
            decision = limiter.check("AI_QUERY", "u")
        assert decision.degraded
        limiter.close()

    def test_a_key_of_another_kind_is_an_outage(self, redis_limiter: Limiter, client: redis.Redis) -> None:
        client.lpush("rl:AI_QUERY:{u}:30000000", "not a counter")
        assert redis_limiter.check("AI_QUERY", "u").degraded
        assert redis_limiter.peek("AI_QUERY", "u").degraded

    async def test_a_key_of_another_kind_is_an_outage_for_an_event_loop_too(
        self, redis_limiter: Limiter, client: redis.Redis
    ) -> None:
        client.lpush("rl:AI_QUERY:{u}:30000000", "not a counter")
        checks = [await redis_limiter.acheck("AI_QUERY", caller) for caller in ("v", "u", "v")]
        assert [decision.degraded for decision in checks] == [False, True, False]
        await redis_limiter.aclose()

    @pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
    def test_event_loops_that_are_closed_are_let_go(self, redis_url: str, fake_clock: FakeClock) -> None:
        store = RedisStore(redis_url, timeout=PATIENT)
        limiter = Limiter(store, clock=fake_clock)
        for _ in range(5):
            assert asyncio.run(limiter.acheck("AI_QUERY", "u"))
        assert len(store._loops) == 1
        store._loops.clear()
        gc.collect()

    def test_clear_says_when_it_could_not(self, silent_url: str) -> None:
        limiter = outage_limiter(silent_url, True)
        for rule in ("AI_QUERY", None):
            with pytest.raises(StoreError):
                limiter.clear(rule, "u")
            with pytest.raises(StoreError):
                asyncio.run(closing(limiter, rule, clear=True))
        limiter.close()

    def test_settling_says_when_it_could_not(self, silent_url: str) -> None:
        store = RedisStore(silent_url, timeout=0.05)
        charge = Charge("rl:g", "u", TWO_A_MINUTE, -1, "g")

        async def asettle() -> None:
            try:
                await store.asettle([charge], 1, 1)
            finally:
                await store.aclose()

        with pytest.raises(StoreError):
            store.settle([charge], 1, 1)
        with pytest.raises(StoreError):
            asyncio.run(asettle())
        store.close()


def outage_limiter(url: str, fail_open: bool) -> Limiter:
    from ratelimit.settings import Settings

    return Limiter(RedisStore(url, timeout=0.05), settings=Settings(fail_open=fail_open))


async def closing(limiter: Limiter, rule: str | None = "AI_QUERY", clear: bool = False):  # type: ignore[no-untyped-def]
    try:
        return await (limiter.aclear(rule, "u") if clear else limiter.acheck(rule or "", "u"))
    finally:
        await limiter.aclose()


class TestClients:
    def test_a_client_handed_in_is_used_and_stays_open(self, redis_url: str, fake_clock: FakeClock) -> None:
        with redis.Redis.from_url(redis_url) as client:
            limiter = Limiter(RedisStore(client=client), clock=fake_clock)
            assert limiter.check(TWO_A_MINUTE, "u").remaining == 1
            limiter.close()
            assert client.get("rl:default:{u}:30000000") == b"1"
            with pytest.raises(ConfigurationError, match="async_client="):
                asyncio.run(limiter.acheck(TWO_A_MINUTE, "u"))

    def test_an_asyncio_client_handed_in_is_used_and_stays_open(self, redis_url: str, fake_clock: FakeClock) -> None:
        async def main() -> bytes:
            async with redis.asyncio.Redis.from_url(redis_url) as client:
                limiter = Limiter(RedisStore(async_client=client), clock=fake_clock)
                assert (await limiter.acheck(TWO_A_MINUTE, "u")).remaining == 1
                await limiter.aclose()
                with pytest.raises(ConfigurationError, match="client="):
                    limiter.check(TWO_A_MINUTE, "u")
                return await client.get("rl:default:{u}:30000000")

        assert asyncio.run(main()) == b"1"

    @pytest.mark.parametrize("protocol", [2, 3])
    def test_both_protocol_versions(self, protocol: int, redis_url: str, fake_clock: FakeClock) -> None:
        limiter = Limiter(
            RedisStore(f"{redis_url}?protocol={protocol}", timeout=PATIENT, server_time=False), clock=fake_clock
        )
        assert [limiter.check(TWO_A_MINUTE, "u").allowed for _ in range(3)] == [True, True, False]
        assert not asyncio.run(closing(limiter, "AI_QUERY")).degraded
        limiter.close()

    def test_decoded_replies_are_understood(self, redis_url: str, fake_clock: FakeClock) -> None:
        limiter = Limiter(
            RedisStore(f"{redis_url}?decode_responses=True", timeout=PATIENT, server_time=False), clock=fake_clock
        )
        assert limiter.check(TWO_A_MINUTE, "u").remaining == 1
        limiter.clear(None, "u")
        assert limiter.check(TWO_A_MINUTE, "u").remaining == 1
        limiter.close()

    @pytest.mark.parametrize("options", [{}, {"url": "redis://h", "client": object()}])
    def test_a_url_or_clients_but_not_both_or_neither(self, options: dict[str, object]) -> None:
        with pytest.raises(ConfigurationError, match="either a URL or clients"):
            RedisStore(**options)  # type: ignore[arg-type]

    @pytest.mark.parametrize("kind", ["cluster", "sentinel"])
    def test_a_url_may_ask_for_tls_wherever_it_points(self, kind: str) -> None:
        path = "service/3" if kind == "sentinel" else ""
        to = target(f"rediss+{kind}://user:secret@h,[::1]:7/{path}?ssl_cert_reqs=none")
        nodes = (("h", 6379 if kind == "cluster" else 26379), ("::1", 7))
        assert (to.kind, to.nodes, to.options["ssl"], to.options["ssl_cert_reqs"]) == (kind, nodes, True, "none")
        assert (to.options["username"], to.options["password"]) == ("user", "secret")

    @pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
    def test_a_timeout_is_above_zero(self, timeout: float) -> None:
        with pytest.raises(ConfigurationError, match="timeout"):
            RedisStore("redis://h", timeout=timeout)

    @pytest.mark.parametrize(
        "url",
        [
            *("redis://h:x/0", "redis+cluster://", "redis+cluster://h:99999999", "redis+sentinel://h:26379"),
            "redis+sentinel://user:secret@,/mymaster",
        ],
    )
    def test_a_bad_url_is_named_without_its_password(self, url: str) -> None:
        with pytest.raises(ConfigurationError) as error:
            Limiter(url)
        assert url.split("@")[-1] in str(error.value)
        assert "secret" not in str(error.value)
