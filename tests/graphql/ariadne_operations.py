"""Ariadne's applications with a limit on whole operations. A server that is started with them has a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ariadne import MutationType, QueryType, SubscriptionType, make_executable_schema
from ariadne.asgi.handlers import GraphQLTransportWSHandler

from ratelimit_graphql import OperationLimit, graphql_ratelimit
from ratelimit_graphql.ariadne import LimitedGraphQL, LimitedWSGIGraphQL
from tests.graphql.operations import QUIET, ran

query, mutation, subscription = QueryType(), MutationType(), SubscriptionType()


@query.field("ping")
def resolve_ping(root: Any, info: Any) -> str:
    ran.append("ping")
    return "pong"


@query.field("scarce")
@graphql_ratelimit(rate="2/m")
def resolve_scarce(root: Any, info: Any) -> str:
    return "here"


@query.field("root")
def resolve_root(root: Any, info: Any) -> str:
    return str(root)


@mutation.field("login")
async def resolve_login(root: Any, info: Any) -> bool:
    ran.append("login")
    return True


@subscription.source("ticks")
async def subscribe_ticks(root: Any, info: Any) -> AsyncIterator[int]:
    ran.append("ticks")
    for tick in range(3):
        yield tick


@subscription.source("counted")
@graphql_ratelimit(rate="3/m", per_event=True)
async def subscribe_counted(root: Any, info: Any) -> AsyncIterator[int]:
    try:
        for tick in range(9):
            yield tick
    finally:
        ran.append("closed")


@subscription.field("ticks")
@subscription.field("counted")
def resolve_tick(tick: int, info: Any) -> int:
    return tick


SCHEMA = make_executable_schema(
    """
    type Query { ping: String, scarce: String, root: String }
    type Mutation { login: Boolean }
    type Subscription { ticks: Int!, counted: Int! }
    """,
    query,
    mutation,
    subscription,
)


def asgi(limit: OperationLimit = QUIET, **options: Any) -> Any:
    options.setdefault("websocket_handler", GraphQLTransportWSHandler())
    return LimitedGraphQL(SCHEMA, operation_limit=limit, **options)


def wsgi(limit: OperationLimit = QUIET, **options: Any) -> Any:
    return LimitedWSGIGraphQL(SCHEMA, operation_limit=limit, **options)
