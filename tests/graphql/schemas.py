"""Small graphql-core schemas, executed by the sync or the async executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import graphql

Resolvers = dict[str, dict[str, Callable[..., Any]]]


def schema(sdl: str, resolvers: Resolvers) -> graphql.GraphQLSchema:
    """The schema of `sdl` with its resolvers, `{"Query": {"ping": resolve_ping}}`."""
    built = graphql.build_schema(sdl)
    for type_name, fields in resolvers.items():
        for field_name, resolver in fields.items():
            field = built.type_map[type_name].fields[field_name]  # type: ignore[attr-defined]
            if type_name == "Subscription":
                field.subscribe, field.resolve = resolver, lambda event, _info, **_arguments: event
            else:
                field.resolve = resolver
    return built


def as_coroutine(resolver: Callable[..., Any]) -> Callable[..., Any]:
    """`resolver` as an `async def` that gives others their turn first."""

    async def resolve(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return resolver(*args, **kwargs)

    return resolve


class Executor:
    """Runs operations by one of graphql-core's executors, on resolvers of its kind."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def resolver(self, resolver: Callable[..., Any]) -> Callable[..., Any]:
        """`resolver` as this executor's schemas have it."""
        return resolver if self.mode == "sync" else as_coroutine(resolver)

    def run(self, built: graphql.GraphQLSchema, query: str, context: Any = None) -> graphql.ExecutionResult:
        """The result of one operation."""
        if self.mode == "sync":
            return graphql.graphql_sync(built, query, context_value=context)
        return asyncio.run(graphql.graphql(built, query, context_value=context))


def denied_paths(result: graphql.ExecutionResult) -> list[list[str | int] | None]:
    """Where an operation was limited; any other error fails the test."""
    errors = result.errors or []
    assert [error.extensions["code"] for error in errors if error.extensions] == ["RATE_LIMITED"] * len(errors), errors
    return [error.path for error in errors]
