"""Rules and policies on Strawberry's fields, in both forms."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

pytest.importorskip("strawberry")

import strawberry

from ratelimit import ConfigurationError, Limiter, Policy, Rule
from ratelimit_graphql import graphql_ratelimit
from ratelimit_graphql.strawberry import RateLimitExtension
from tests.graphql.callers import HERE, request

POLICY = Policy(
    Rule("version", action="skip", match={"field": "Query.version"}),
    Rule("writes", "2/m", by=("ip", "field"), match={"operation": "mutation"}, ban_for=900),
    Rule("accounts", "2/h", by="ip", count_distinct="account", match={"field": ["Query.find", "Query.findToo"]}),
    Rule("streams", "1/m", match={"operation": "subscription"}),
    Rule("watched", "1/m", action="log"),
)
LIMIT = RateLimitExtension(POLICY, attributes=lambda root, info, **arguments: arguments)


@strawberry.type
class Query:
    @strawberry.field(extensions=[LIMIT])
    def version(self) -> str:
        return "1"

    @strawberry.field(extensions=[LIMIT])
    async def find(self, account: str) -> str:
        return account

    @strawberry.field
    @graphql_ratelimit(POLICY, attributes=lambda root, info, **arguments: arguments)
    async def find_too(self, info: strawberry.Info, account: str) -> str:
        return str(info.context["request"].limit_key)


@strawberry.type
class Mutation:
    @strawberry.mutation(extensions=[LIMIT])
    async def rename(self) -> str:
        return "renamed"

    @strawberry.mutation
    @graphql_ratelimit(rate=POLICY)
    def remove(self, info: strawberry.Info) -> str:
        return "removed"


@strawberry.type
class Subscription:
    @strawberry.subscription(extensions=[LIMIT])
    async def ticks(self) -> AsyncGenerator[int, None]:
        yield 1


SCHEMA = strawberry.Schema(Query, Mutation, Subscription)


async def waits(document: str, times: int = 1) -> list[Any]:
    """For each of so many operations None, or the wait that its denial tells."""
    results = [await SCHEMA.execute(document, context_value={"request": request()}) for _ in range(times)]
    return [result.errors[0].extensions["retry_after"] if result.errors else None for result in results]


@pytest.mark.parametrize("field", ["rename", "remove"])
async def test_either_form_knows_field_and_operation(field: str, limiter: Limiter) -> None:
    assert await waits(f"mutation {{ alias: {field} }}", 4) == [None, None, 900, 900]
    other = {"rename": "remove", "remove": "rename"}[field]
    assert await waits(f"mutation {{ {other} }}", 2) == [None, None]


async def test_either_form_counts_by_arguments(limiter: Limiter) -> None:
    assert await waits('{ find(account: "a") }', 5) == [None] * 5
    assert await waits('{ findToo(account: "b") }', 5) == [None] * 5
    assert await waits('{ find(account: "c") }') == [3600]
    assert await waits('{ findToo(account: "a") }') == [None]


async def test_a_skipped_field_is_free(limiter: Limiter) -> None:
    assert await waits("{ version }", 9) == [None] * 9
    assert limiter.peek(POLICY["watched"], f"ip:{HERE}").remaining == 1


async def test_a_subscription_is_one(limiter: Limiter) -> None:
    async def subscribed() -> bool:
        stream: Any = await SCHEMA.subscribe("subscription { ticks }", context_value={"request": request()})
        if hasattr(stream, "__aiter__"):
            (stream,) = [event async for event in stream]
        return not stream.errors

    assert [await subscribed() for _ in range(2)] == [True, False]


async def test_the_resolver_finds_the_callers_key(limiter: Limiter) -> None:
    result = await SCHEMA.execute('{ findToo(account: "a") }', context_value={"request": request()})
    assert result.data == {"findToo": f"ip:{HERE}"}


def test_a_key_beside_a_policy_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="key='ip' has no effect on"):
        RateLimitExtension(POLICY, key="ip")
