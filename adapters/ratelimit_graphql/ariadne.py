"""Whole operations of Ariadne: its ASGI and WSGI applications with a limit.

    application = LimitedGraphQL(schema, operation_limit=OperationLimit(rate="500/m"))

They pass the limit on to Ariadne as a root value, which is the last that it asks for before an operation is executed.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from ariadne.asgi import GraphQL
from ariadne.asgi.handlers import GraphQLHTTPHandler
from ariadne.wsgi import GraphQL as WSGIGraphQL
from graphql import GraphQLSchema

from ratelimit_graphql.operation_limit import OperationLimit, given_limit
from ratelimit_graphql.response import Shown, showing


def limited_root(limit: OperationLimit, schema: GraphQLSchema, root_value: Any = None) -> Callable[..., Any]:
    """A `root_value` for `graphql`, `subscribe` and whoever calls them, that asks `limit` before it gives `root_value`."""

    async def root(context: Any, operation_name: str | None, variables: Any, document: Any) -> Any:
        limit.answer(context, await limit.acheck(schema, document, context, variables, operation_name))
        value = root_value(context, operation_name, variables, document) if callable(root_value) else root_value
        return await value if isawaitable(value) else value

    limit.check_schema(schema)
    return root


def limited_root_sync(limit: OperationLimit, schema: GraphQLSchema, root_value: Any = None) -> Callable[..., Any]:
    """`limited_root` for `graphql_sync`."""

    def root(context: Any, operation_name: str | None, variables: Any, document: Any) -> Any:
        limit.answer(context, limit.check(schema, document, context, variables, operation_name))
        return root_value(context, operation_name, variables, document) if callable(root_value) else root_value

    limit.check_schema(schema)
    return root


class LimitedHTTPHandler(GraphQLHTTPHandler):
    """Ariadne's HTTP handler, answering as `limit` says: status and headers of a refusal; invalid documents count."""

    def __init__(self, limit: OperationLimit, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limit = given_limit(limit)

    async def handle_request(self, request: Any) -> Any:
        """The response, with what it has to tell of the limits."""
        with showing() as shown:
            response = await super().handle_request(request)
        shown.write(response, self._limit.limiter.settings.headers)
        return response

    async def execute_graphql_query(self, request: Any, data: Any, *, context_value: Any = None, **kwargs: Any) -> Any:
        """The result of one operation; one that could not be executed is counted as invalid."""
        if context_value is None:
            context_value = await self.get_context_for_request(request, data)
        with showing() as shown:
            before = shown.asked
            success, result = await super().execute_graphql_query(request, data, context_value=context_value, **kwargs)
        if not success and shown.asked == before:
            await self._limit.acount_invalid(context_value)
        return success, _with_data(result, shown)


class LimitedGraphQL(GraphQL):
    """Ariadne's ASGI application with a limit on operations, over HTTP and WebSocket."""

    def __init__(
        self,
        schema: GraphQLSchema,
        *,
        operation_limit: OperationLimit,
        root_value: Any = None,
        http_handler: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            schema,
            root_value=limited_root(given_limit(operation_limit), schema, root_value),
            http_handler=http_handler or LimitedHTTPHandler(operation_limit),
            **kwargs,
        )


class LimitedWSGIGraphQL(WSGIGraphQL):
    """Ariadne's WSGI application with a limit on operations."""

    def __init__(
        self, schema: GraphQLSchema, *, operation_limit: OperationLimit, root_value: Any = None, **kwargs: Any
    ) -> None:
        self._limit = given_limit(operation_limit)
        super().__init__(schema, root_value=limited_root_sync(operation_limit, schema, root_value), **kwargs)

    def handle_request(self, environ: Any, start_response: Any) -> Any:
        """The response, with what it has to tell of the limits."""
        with showing() as shown:

            def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
                told = shown.headers(self._limit.limiter.settings.headers)
                if shown.status is not None:
                    status = "429 Too Many Requests" if shown.status == 429 else "200 OK"
                return start_response(status, [*headers, *told.items()], *rest)

            return super().handle_request(environ, start)

    def execute_query(self, environ: Any, data: Any) -> Any:
        """The result of one operation; one that could not be executed is counted as invalid."""
        with showing() as shown:
            before = shown.asked
            success, result = super().execute_query(environ, data)
        if not success and shown.asked == before:
            self._limit.count_invalid(self.get_context_for_request(environ, data))
        return success, _with_data(result, shown)


def _with_data(result: Any, shown: Shown) -> Any:
    """`result`, which for an error before the execution has no `data`: a refusal has null."""
    return result if shown.status is None else {**result, "data": None}
