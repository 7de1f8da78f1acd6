"""A Strawberry schema limited in both forms, and the URLs that serve it by Strawberry's Django views."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import strawberry
from django.urls import path
from strawberry.channels import GraphQLHTTPConsumer, GraphQLWSConsumer
from strawberry.django.views import AsyncGraphQLView, GraphQLView

from ratelimit import RateLimits
from ratelimit_graphql import graphql_ratelimit
from ratelimit_graphql.strawberry import RateLimitExtension


@strawberry.type
class Item:
    name: str = strawberry.field(extensions=[RateLimitExtension(rate="3/m")])


@strawberry.type
class Query:
    @strawberry.field
    @graphql_ratelimit(rate=RateLimits.WRITE_HEAVY)
    def documents(self, info: strawberry.Info, first: int = 2) -> list[str]:
        """The documents."""
        return ["a", "b"][:first]

    @strawberry.field
    @graphql_ratelimit(rate="2/m")
    async def ping(self, info: strawberry.Info) -> str:
        return "pong"

    @strawberry.field(extensions=[RateLimitExtension(rate="2/m")])
    def plain(self) -> str:
        return "plain"

    @strawberry.field(extensions=[RateLimitExtension(rate="2/m")])
    async def awaited(self, word: str = "x") -> str:
        return word

    @strawberry.field
    def items(self) -> list[Item]:
        return [Item(name=f"{n}") for n in range(5)]

    @strawberry.field
    @graphql_ratelimit(rate="1/m", block=False)
    async def limited(self, info: strawberry.Info) -> bool:
        return bool(info.context["request"].limited)


@strawberry.type
class Mutation:
    @strawberry.mutation
    @graphql_ratelimit("AUTH_LOGIN")
    async def login(self, info: strawberry.Info, name: str) -> str:
        return name


@strawberry.type
class Subscription:
    @strawberry.subscription
    @graphql_ratelimit(rate="2/m")
    async def ticks(self, info: strawberry.Info) -> AsyncGenerator[int, None]:
        yield 1

    @strawberry.subscription(extensions=[RateLimitExtension(rate="2/m")])
    async def tocks(self) -> AsyncGenerator[int, None]:
        yield 1


SCHEMA = strawberry.Schema(Query, Mutation, Subscription)

urlpatterns = [
    path("sync", GraphQLView.as_view(schema=SCHEMA)),
    path("async", AsyncGraphQLView.as_view(schema=SCHEMA)),
]
consumers = {"http": GraphQLHTTPConsumer.as_asgi(schema=SCHEMA), "websocket": GraphQLWSConsumer.as_asgi(schema=SCHEMA)}
