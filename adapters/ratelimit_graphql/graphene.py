"""Whole operations of Graphene and graphene-django.

    class API(OperationLimitMixin, GraphQLView):
        operation_limit = OperationLimit(rate="500/m")

    schema.execute(text, context_value=request, execution_context_class=limited_execution(limit))

They stand on graphql-core 3.2, which Graphene needs.
"""

from __future__ import annotations

from functools import lru_cache
from inspect import isawaitable
from typing import Any

from graphql import ExecutionContext, ExecutionResult, GraphQLError, OperationDefinitionNode

from ratelimit import ConfigurationError
from ratelimit_graphql.cost import Document
from ratelimit_graphql.errors import OperationLimitExceeded
from ratelimit_graphql.operation_limit import OperationLimit, given_limit
from ratelimit_graphql.response import showing


@lru_cache(maxsize=64)  # a view is made for each request
def limited_execution(
    limit: OperationLimit, base: type[ExecutionContext] | None = None, *, asynchronous: bool = False
) -> type[ExecutionContext]:
    """An `execution_context_class` that asks `limit` before it executes an operation as `base` does.

    It is asked when the document is valid and its variables are known. With `asynchronous` it does not block the event
    loop: for `schema.execute_async`.
    """
    kind: Any = base or ExecutionContext

    class LimitedExecution(kind):  # type: ignore[misc]
        def execute_operation(self, operation: OperationDefinitionNode, root_value: Any) -> Any:
            if asynchronous:
                return self._execute_asynchronously(operation, root_value)
            limit.answer(self.context_value, limit.check(*self._asked(operation)))
            return super().execute_operation(operation, root_value)

        async def _execute_asynchronously(self, operation: OperationDefinitionNode, root_value: Any) -> Any:
            limit.answer(self.context_value, await limit.acheck(*self._asked(operation)))
            result = super().execute_operation(operation, root_value)
            return await result if isawaitable(result) else result

        def _asked(self, operation: OperationDefinitionNode) -> tuple[Any, ...]:
            return self.schema, Document(operation, self.fragments), self.context_value, self.variable_values

    return LimitedExecution


class OperationLimitMixin:
    """For graphene-django: put it before `GraphQLView` and give the class, or `as_view`, an `operation_limit`.

    A refused operation is answered `{"errors": [...], "data": null}` with the limit's status. Each operation of a batch
    takes its own cost; the status of a batch is 429 only if all of it was refused.
    """

    operation_limit: OperationLimit | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Raises `ConfigurationError` where a view comes before the mixin, which it would leave without effect."""
        super().__init_subclass__(**kwargs)
        for base in cls.__mro__[: cls.__mro__.index(OperationLimitMixin)]:
            if "execute_graphql_request" in vars(base) and not issubclass(base, OperationLimitMixin):
                raise ConfigurationError(
                    f"{cls.__qualname__}: OperationLimitMixin has no effect after {base.__qualname__}"
                )

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        """The view. `ConfigurationError` without an `operation_limit`."""
        given_limit(initkwargs.get("operation_limit") or cls.operation_limit, f"{cls.__qualname__}: ")
        return super().as_view(**initkwargs)  # type: ignore[misc]

    def __init__(self, *args: Any, operation_limit: OperationLimit | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        view: Any = self
        self._limit = given_limit(operation_limit or self.operation_limit, f"{type(self).__qualname__}: ")
        self._limit.check_schema(view.schema.graphql_schema)
        self._refusal: GraphQLError | None = None
        view.execution_context_class = limited_execution(self._limit, view.execution_context_class)

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """The view's answer, with what it has to tell of the limits."""
        with showing() as shown:
            response = super().dispatch(request, *args, **kwargs)  # type: ignore[misc]
        shown.write(response, self._limit.limiter.settings.headers)
        return response

    def execute_graphql_request(self, request: Any, *args: Any, **kwargs: Any) -> ExecutionResult | None:
        """The result of one operation; one that could not be executed is counted as invalid."""
        self._refusal = None
        with showing() as shown:
            before = shown.asked
            result: ExecutionResult | None = super().execute_graphql_request(request, *args, **kwargs)  # type: ignore[misc]
        errors = (result and result.errors) or ()
        if shown.asked == before and errors:
            self._count_invalid(request)
        self._refusal = next((error for error in errors if isinstance(error, OperationLimitExceeded)), None)
        return result

    def _count_invalid(self, request: Any) -> None:
        view: Any = self
        try:
            context = view.get_context(request)
        except Exception:  # that is the error, then: the view's own, and no client's
            return
        self._limit.count_invalid(context)

    def get_response(self, request: Any, data: Any, show_graphiql: bool = False) -> tuple[Any, int]:
        """The body and status of one operation. The view's own for an error like this would be 400, and no `data`."""
        result, status = super().get_response(request, data, show_graphiql)  # type: ignore[misc]
        if self._refusal is None:
            return result, status
        view: Any = self
        body: dict[str, Any] = {"errors": [view.format_error(self._refusal)], "data": None}
        if view.batch:
            body |= {"id": view.get_graphql_params(request, data)[3], "status": self._limit.status}
        return view.json_encode(request, body, pretty=show_graphiql), 200  # a batch takes the highest of its statuses
