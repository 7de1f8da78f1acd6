"""Exactly the limit passes, however many ask at once, and each check is one trip to the store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import graphql
import pytest

from ratelimit import Limiter, MemoryStore
from ratelimit.stores.redis import RedisStore
from ratelimit_graphql import RateLimitExceeded, graphql_ratelimit
from tests.graphql.callers import User, info, request
from tests.graphql.schemas import as_coroutine, denied_paths, schema
from tests.wire import CountingProxy

SDL = "type Query { ping: Boolean }"


def still_clock() -> int:
    """A clock that stands still: no window ends while a test runs."""
    return 1_800_000_000_000_000


def answers(result: graphql.ExecutionResult) -> int:
    """How many of the operation's fields were let through."""
    denied = denied_paths(result)
    assert result.data is not None
    assert len(denied) == list(result.data.values()).count(None)
    return len(result.data) - len(denied)


class Exact:
    """Of what one caller asks, the limit's number passes. Subclass it with a fixture `shared`, a limiter."""

    def test_8_threads_each_with_operations_of_their_own(self, shared: Limiter) -> None:
        built = schema(
            SDL, {"Query": {"ping": graphql_ratelimit(rate="100/m", limiter=shared)(lambda root, info: True)}}
        )
        together = threading.Barrier(8)

        def ask(_: int) -> int:
            together.wait()
            return sum(
                answers(graphql.graphql_sync(built, "{ a: ping b: ping }", context_value=request(user=User(1))))
                for _ in range(10)
            )

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(ask, range(8))) == 100

    async def test_200_operations_at_once(self, shared: Limiter) -> None:
        ping = graphql_ratelimit(rate="100/m", limiter=shared)(as_coroutine(lambda root, info: True))
        built = schema(SDL, {"Query": {"ping": ping}})
        results = await asyncio.gather(
            *(graphql.graphql(built, "{ ping }", context_value=request(user=User(1))) for _ in range(200))
        )
        assert sum(map(answers, results)) == 100
        await shared.aclose()

    async def test_200_aliases_in_one_operation(self, shared: Limiter) -> None:
        ping = graphql_ratelimit(rate="100/m", limiter=shared)(as_coroutine(lambda root, info: True))
        built = schema(SDL, {"Query": {"ping": ping}})
        aliases = " ".join(f"a{n}: ping" for n in range(200))
        result = await graphql.graphql(built, f"{{ {aliases} }}", context_value=request())
        assert answers(result) == 100
        await shared.aclose()


class TestInMemory(Exact):
    @pytest.fixture
    def shared(self) -> Limiter:
        return Limiter(MemoryStore(), clock=still_clock)


class TestOnARealServer(Exact):
    @pytest.fixture
    def shared(self, redis_url: str) -> Iterator[Limiter]:
        # A timeout that a slow machine does not meet: this is about counting, not about an outage.
        limiter = Limiter(RedisStore(redis_url, timeout=30), clock=still_clock)
        yield limiter
        limiter.close()


def test_one_round_trip_for_each_field(proxy: CountingProxy) -> None:
    limiter = Limiter(RedisStore(proxy.url, timeout=30))
    ping = graphql_ratelimit("AI_QUERY", limiter=limiter)(lambda root, info: True)
    built = schema(SDL, {"Query": {"ping": ping}})
    assert answers(graphql.graphql_sync(built, "{ ping }", context_value=request())) == 1
    proxy.reset()
    aliases = " ".join(f"a{n}: ping" for n in range(30))
    assert answers(graphql.graphql_sync(built, f"{{ {aliases} }}", context_value=request())) == 19
    # The first one that is denied is asked for; the other ten are known then.
    assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 20}, 20)
    limiter.close()


class AsyncOnly(Limiter):
    """A limiter that must be awaited."""

    def check(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the event loop was blocked")

    check_many = check


async def test_async_resolvers_never_ask_the_store_on_the_loop() -> None:
    limit = graphql_ratelimit(rate="1/m", limiter=AsyncOnly(MemoryStore()))

    @limit
    async def resolve_ping(root: Any, info: Any) -> bool:
        return True

    @limit
    async def subscribe_ping(root: Any, info: Any) -> AsyncIterator[bool]:
        yield True

    assert await resolve_ping(None, info(request(), field_name="a"))
    assert [tick async for tick in await subscribe_ping(None, info(request(), field_name="b"))] == [True]
    for resolver, field_name in ((resolve_ping, "a"), (subscribe_ping, "b")):
        with pytest.raises(RateLimitExceeded):
            await resolver(None, info(request(), field_name=field_name))
