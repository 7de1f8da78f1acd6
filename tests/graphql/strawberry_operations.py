"""Strawberry schemas with a limit on whole operations, and the URLs and applications that serve them."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import strawberry
from django.urls import path
from strawberry.channels import GraphQLHTTPConsumer
from strawberry.django.views import AsyncGraphQLView, GraphQLView
from strawberry.schema.config import StrawberryConfig

from ratelimit_graphql import OperationLimit
from ratelimit_graphql.strawberry import OperationLimitExtension, RateLimitExtension, SyncOperationLimitExtension
from tests.graphql.operations import LOUD, QUIET, ran


@strawberry.type
class Query:
    @strawberry.field
    def ping(self) -> str:
        ran.append("ping")
        return "pong"

    @strawberry.field(extensions=[RateLimitExtension(rate="2/m")])
    async def scarce(self) -> str | None:
        return "here"


@strawberry.type
class Mutation:
    @strawberry.mutation
    def login(self) -> bool:
        ran.append("login")
        return True


@strawberry.type
class Subscription:
    @strawberry.subscription
    async def ticks(self) -> AsyncGenerator[int, None]:
        ran.append("ticks")
        for tick in range(3):
            yield tick

    @strawberry.subscription(extensions=[RateLimitExtension(rate="3/m", per_event=True)])
    async def counted(self) -> AsyncGenerator[int, None]:
        try:
            for tick in range(9):
                yield tick
        finally:
            ran.append("closed")


BATCHING = StrawberryConfig(batching_config={"max_operations": 1_000})


def schema(limit: OperationLimit, sync: bool = False) -> strawberry.Schema:
    kind = SyncOperationLimitExtension if sync else OperationLimitExtension
    return strawberry.Schema(Query, Mutation, Subscription, extensions=[lambda: kind(limit)], config=BATCHING)


urlpatterns = [
    path("sync", GraphQLView.as_view(schema=schema(QUIET, sync=True))),
    path("async", AsyncGraphQLView.as_view(schema=schema(QUIET))),
    path("loud-sync", GraphQLView.as_view(schema=schema(LOUD, sync=True))),
    path("loud-async", AsyncGraphQLView.as_view(schema=schema(LOUD))),
]


def channels(limit: OperationLimit) -> GraphQLHTTPConsumer:
    """Channels' consumer of HTTP requests."""
    return GraphQLHTTPConsumer.as_asgi(schema=schema(limit))
