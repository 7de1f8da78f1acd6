"""`per_event`: each event of a subscription takes the cost, too; one that is denied ends it with the error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import graphql
import pytest

from ratelimit import ConfigurationError
from ratelimit.testing import FakeClock
from ratelimit_graphql import RateLimitExceeded, graphql_ratelimit
from tests.graphql.callers import THERE, info, request
from tests.graphql.schemas import denied_paths, schema

pytestmark = pytest.mark.usefixtures("limiter")

SDL = "type Query { x: Int } type Subscription { ticks(upto: Int!): Int }"
closed: list[str] = []


async def generator(root: Any, info: Any, upto: int) -> AsyncIterator[int]:
    try:
        for tick in range(upto):
            yield tick
    finally:
        closed.append("closed")


async def returning_a_generator(root: Any, info: Any, upto: int) -> AsyncIterator[int]:
    return generator(root, info, upto)


def plainly_returning_a_generator(root: Any, info: Any, upto: int) -> AsyncIterator[int]:
    return generator(root, info, upto)


def plainly_returning_a_coroutine(root: Any, info: Any, upto: int) -> Any:
    return returning_a_generator(root, info, upto)


class Endless:
    """A stream that is no generator: it cannot be closed."""

    def __aiter__(self) -> Endless:
        return self

    async def __anext__(self) -> int:
        return 1


def endless(root: Any, info: Any, upto: int) -> Endless:
    return Endless()


@pytest.fixture(autouse=True)
def _nothing_closed() -> None:
    closed.clear()


def of(resolver: Any, **limit: Any) -> graphql.GraphQLSchema:
    return schema(SDL, {"Subscription": {"ticks": graphql_ratelimit(per_event=True, **limit)(resolver)}})


async def opened(built: graphql.GraphQLSchema, upto: int, context: Any) -> Any:
    """The stream of one subscription, or the answer that refused it."""
    document = graphql.parse(f"subscription {{ ticks(upto: {upto}) }}")
    stream: Any = graphql.subscribe(built, document, context_value=context)
    return await stream if hasattr(stream, "__await__") else stream


async def events(built: graphql.GraphQLSchema, upto: int, context: Any) -> list[Any]:
    """The events of one subscription; last, the error that ended it, if one did."""
    found: list[Any] = []
    try:
        async for event in await opened(built, upto, context):
            found.append(event.data["ticks"])
    except RateLimitExceeded as error:
        found.append(error)
    return found


@pytest.mark.parametrize(
    "resolver",
    [generator, returning_a_generator, plainly_returning_a_generator, plainly_returning_a_coroutine],
)
async def test_each_event_counts_and_a_denied_one_ends_the_stream(resolver: Any) -> None:
    built = of(resolver, rate="6/m")
    assert await events(built, 2, request()) == [0, 1]
    *passed, error = await events(built, 9, request())
    assert passed == [0, 1]
    assert error.extensions == {"code": "RATE_LIMITED", "retry_after": 60, "limit": 6}
    assert closed == ["closed"] * 2
    refused = await opened(built, 9, request())
    assert (refused.data, denied_paths(refused)) == (None, [["ticks"]])
    assert await events(built, 2, request(THERE)) == [0, 1]


async def test_a_client_that_leaves_closes_the_source() -> None:
    stream = await opened(of(generator, rate="9/m"), 9, request())
    assert (await anext(stream)).data == {"ticks": 0}
    await stream.aclose()
    assert closed == ["closed"]


async def test_a_stream_that_is_no_generator() -> None:
    *passed, error = await events(of(endless, rate="4/m"), 0, request())
    assert (passed, type(error)) == ([1, 1, 1], RateLimitExceeded)


async def test_it_goes_on_when_the_window_is_over(fake_clock: FakeClock) -> None:
    stream = await opened(of(generator, rate="3/m"), 9, request())
    assert [(await anext(stream)).data["ticks"] for _ in range(2)] == [0, 1]
    fake_clock.advance(60)
    assert [(await anext(stream)).data["ticks"] for _ in range(3)] == [2, 3, 4]
    with pytest.raises(RateLimitExceeded):
        await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_cost_and_key_are_asked_for_each_event() -> None:
    seen: list[int] = []

    def cost(root: Any, info: Any, upto: int) -> int:
        seen.append(upto)
        return 2

    *passed, error = await events(of(generator, rate="7/m", cost=cost), 9, request())
    assert (passed, type(error)) == ([0, 1], RateLimitExceeded)
    assert seen == [9] * 4


async def test_without_block_the_events_go_on_and_the_request_is_told() -> None:
    context = request()
    assert await events(of(generator, rate="2/m", block=False), 4, context) == [0, 1, 2, 3]
    assert (context.limited, context.limit_decision.remaining) == (True, 0)


@pytest.mark.parametrize("given", [5, [1, 2], None])
async def test_what_gives_no_events_is_an_error_that_names_it(given: Any) -> None:
    @graphql_ratelimit(rate="9/m", per_event=True)
    def resolve_numbers(root: Any, info: Any) -> Any:
        return given

    with pytest.raises(ConfigurationError, match=r"per_event=True on .*resolve_numbers"):
        resolve_numbers(None, info(request()))
