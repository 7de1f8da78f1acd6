"""The schema of `test_one_document` in Strawberry. Its annotations are types: some of them are local."""

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any

import strawberry

from ratelimit_graphql.strawberry import RateLimitExtension


@strawberry.type
class Item:
    name: str | None = "n"


def schema(sync: bool, attempts: list[str], cost: Callable[..., int]) -> strawberry.Schema:
    """Its limited resolvers are plain functions or coroutine functions; names that log in are put into `attempts`."""

    def hit(first: int = 10) -> int | None:
        return first

    def answer() -> str | None:
        return "pong"

    def attempt(name: str) -> bool | None:
        attempts.append(name)
        return True

    def many() -> list[Item] | None:
        return [Item() for _ in range(20)]

    def field(function: Callable[..., Any], limit: RateLimitExtension) -> Any:
        return strawberry.field(resolver=function if sync else awaited(function), extensions=[limit])

    @strawberry.type
    class Side:
        ping: str | None = field(answer, RateLimitExtension(rate="3/m"))

    def side() -> Side | None:
        return Side()

    @strawberry.type
    class Query:
        ping: str | None = field(answer, RateLimitExtension(rate="1/s"))
        hits: int | None = field(hit, RateLimitExtension(rate="30/m", cost=cost))
        left: Side | None = strawberry.field(resolver=side)
        right: Side | None = strawberry.field(resolver=side)
        items: list[Item] | None = field(many, RateLimitExtension(rate="2/m"))

    @strawberry.type
    class Mutation:
        login: bool | None = field(attempt, RateLimitExtension("AUTH_LOGIN"))

    return strawberry.Schema(Query, Mutation)


def awaited(function: Callable[..., Any]) -> Any:
    """`function` as an `async def` that gives others their turn first."""

    @wraps(function)
    async def resolve(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return function(*args, **kwargs)

    return resolve
