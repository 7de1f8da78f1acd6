"""A subscription is limited when the client subscribes: the error is the answer, and no stream begins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import graphql
import pytest

from ratelimit_graphql import graphql_ratelimit
from tests.graphql.callers import THERE, request
from tests.graphql.schemas import denied_paths, schema

pytestmark = pytest.mark.usefixtures("limiter")

SDL = "type Query { x: Int } type Subscription { ticks(upto: Int!): Int }"


async def generator(root: Any, info: Any, upto: int) -> AsyncIterator[int]:
    for tick in range(upto):
        yield tick


async def returning_a_generator(root: Any, info: Any, upto: int) -> AsyncIterator[int]:
    return generator(root, info, upto)


def plainly_returning_a_generator(root: Any, info: Any, upto: int) -> AsyncIterator[int]:
    return generator(root, info, upto)


async def subscribed(built: graphql.GraphQLSchema, context: Any) -> list[Any] | graphql.ExecutionResult:
    """The events of one subscription, or the answer that refused it."""
    stream: Any = graphql.subscribe(built, graphql.parse("subscription { ticks(upto: 3) }"), context_value=context)
    if hasattr(stream, "__await__"):
        stream = await stream
    if isinstance(stream, graphql.ExecutionResult):
        return stream
    return [event.data["ticks"] async for event in stream]


@pytest.mark.parametrize("resolver", [generator, returning_a_generator, plainly_returning_a_generator])
async def test_each_subscription_counts_and_its_events_do_not(resolver: Any) -> None:
    built = schema(SDL, {"Subscription": {"ticks": graphql_ratelimit(rate="2/m")(resolver)}})
    assert [await subscribed(built, request()) for _ in range(2)] == [[0, 1, 2], [0, 1, 2]]
    refused = await subscribed(built, request())
    assert isinstance(refused, graphql.ExecutionResult)
    assert (refused.data, denied_paths(refused)) == (None, [["ticks"]])
    assert await subscribed(built, request(THERE)) == [0, 1, 2]


async def test_a_flagged_subscription_streams_and_is_told() -> None:
    context = request()
    built = schema(SDL, {"Subscription": {"ticks": graphql_ratelimit(rate="0/m", block=False)(generator)}})
    assert await subscribed(built, context) == [0, 1, 2]
    assert context.limited is True
