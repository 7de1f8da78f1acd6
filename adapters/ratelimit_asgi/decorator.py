"""A limit around an endpoint: `@endpoint_ratelimit("AI_QUERY")` for Starlette and FastAPI.

Rules:
- What is decorated stays what it was: a coroutine function, a plain one, a generator; name, docstring and annotations too.
- FastAPI is told of one more parameter, a dependency, and asks the limit before it calls the endpoint: none needs a
  `request`. Elsewhere the connection is among the arguments.
- An open WebSocket is not closed: its client is told, and the message is not handled.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from copy import copy
from functools import partial, wraps
from typing import Any, TypeVar

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketState

from ratelimit import ConfigurationError, Identity, Limiter
from ratelimit.guard import Attributes
from ratelimit.plan import RuleLike
from ratelimit_asgi.caller import User
from ratelimit_asgi.endpoint import EndpointLimit, limit
from ratelimit_asgi.messages import send_denial

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


def endpoint_ratelimit(
    rule: RuleLike | None = None,
    *,
    rate: RuleLike | Callable[[Any], RuleLike | None] | None = None,
    key: str | Callable[[Any], str | Identity] = "user_or_ip",
    cost: int | Callable[[Any], int] = 1,
    group: str | None = None,
    attributes: Attributes | None = None,
    user: User | None = None,
    limiter: Limiter | None = None,
) -> Callable[[_Endpoint], _Endpoint]:
    """Limits an endpoint of Starlette or FastAPI: a function, or a method of an endpoint class. Options as in `limit`.

    Put it below the decorator that makes a route of the endpoint. Raises `ConfigurationError` for what cannot be limited.
    """
    asked = limit(rule, rate=rate, key=key, cost=cost, group=group, attributes=attributes, user=user, limiter=limiter)
    return partial(_limited, asked)


def _limited(limit: EndpointLimit, endpoint: _Endpoint) -> _Endpoint:
    if inspect.isclass(endpoint) or not callable(endpoint):
        raise ConfigurationError(f"{endpoint!r} is not a function: decorate the methods of a class one by one")
    function = _function(endpoint)
    parameter, signature = _signature(limit, endpoint, function)
    if inspect.isasyncgenfunction(function):
        limited: Any = _async_generator(endpoint, parameter)
    elif inspect.isgeneratorfunction(function):
        limited = _generator(endpoint, parameter)
    elif inspect.iscoroutinefunction(function):
        limited = _async(limit, endpoint, parameter)
    elif limit.needs_loop and not parameter:
        raise ConfigurationError(
            f"{endpoint!r} is not async, and what user= gives has to be awaited: make either one so"
        )
    else:
        limited = _sync(limit, endpoint, parameter)
    limited = wraps(endpoint)(limited)
    if signature is not None:
        limited.__signature__ = signature
    found: _Endpoint = limited
    return found


def _async(limit: EndpointLimit, endpoint: Callable[..., Any], parameter: str) -> Callable[..., Any]:
    async def limited(*args: Any, **kwargs: Any) -> Any:
        connection = kwargs.pop(parameter, None)
        if connection is None:
            connection = _connection(endpoint, args, kwargs)
            if isinstance(connection, WebSocket) and connection.application_state is WebSocketState.CONNECTED:
                decision = await limit.amessage(connection)
                if not decision.allowed:
                    await send_denial(connection, decision)
                    return None
            else:
                await limit.acheck(connection)
        return _with_headers(await endpoint(*args, **kwargs), limit, connection)

    return limited


def _sync(limit: EndpointLimit, endpoint: Callable[..., Any], parameter: str) -> Callable[..., Any]:
    def limited(*args: Any, **kwargs: Any) -> Any:
        connection = kwargs.pop(parameter, None)
        if connection is None:
            connection = _connection(endpoint, args, kwargs)
            limit.check(connection)
        return _with_headers(endpoint(*args, **kwargs), limit, connection)

    return limited


def _generator(endpoint: Callable[..., Any], parameter: str) -> Callable[..., Any]:
    def limited(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        _solved(endpoint, kwargs, parameter)
        return (yield from endpoint(*args, **kwargs))

    return limited


def _async_generator(endpoint: Callable[..., Any], parameter: str) -> Callable[..., Any]:
    async def limited(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        _solved(endpoint, kwargs, parameter)
        inner = endpoint(*args, **kwargs)
        step = inner.__anext__
        try:
            # What `yield from` does, for which there is no asynchronous form.
            while True:
                item = await step()
                try:
                    sent = yield item
                except GeneratorExit:
                    raise
                except BaseException as error:
                    step = partial(inner.athrow, error)
                else:
                    step = partial(inner.asend, sent)
        except StopAsyncIteration:
            return
        finally:
            await inner.aclose()

    return limited


def _solved(endpoint: object, kwargs: dict[str, Any], parameter: str) -> None:
    """Without FastAPI nobody has asked the limit; a generator would ask it when its response has begun."""
    if kwargs.pop(parameter, None) is None:
        raise _not_asked(endpoint)


def _connection(endpoint: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> HTTPConnection:
    for one in (*args, *kwargs.values()):
        if isinstance(one, HTTPConnection):
            return one
    raise _not_asked(endpoint)


def _not_asked(endpoint: object) -> ConfigurationError:
    return ConfigurationError(
        f"{endpoint!r} was called without a Request or WebSocket to limit: give it one as a parameter, or, in FastAPI, "
        "import fastapi before the endpoint is decorated"
    )


def _with_headers(given: Any, limit: EndpointLimit, connection: HTTPConnection) -> Any:
    """What an endpoint gave, with the limit headers if it is a response; a copy, for an application may keep its own."""
    headers = limit.headers(connection.scope) if isinstance(given, Response) else None
    if not headers:
        return given
    response = copy(given)
    response.__dict__.pop("_headers", None)  # which is a view of the list that is replaced now
    known = {name.lower() for name, _ in given.raw_headers}
    lines = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    response.raw_headers = [*given.raw_headers, *(line for line in lines if line[0] not in known)]
    return response


def _function(endpoint: Any) -> Any:
    """What tells whether an endpoint is async."""
    while isinstance(endpoint, partial):
        endpoint = endpoint.func
    return endpoint if inspect.isroutine(endpoint) else endpoint.__call__


def _signature(
    limit: EndpointLimit, endpoint: Callable[..., Any], function: Any
) -> tuple[str, inspect.Signature | None]:
    """The name of the parameter that FastAPI fills, and the signature it reads; none where there is no FastAPI."""
    if "fastapi" not in sys.modules:
        return "", None
    from fastapi.params import Depends

    signature = inspect.signature(endpoint)
    namespace = getattr(inspect.unwrap(function), "__globals__", {})
    parameters = [
        one.replace(annotation=_evaluated(one.annotation, namespace)) for one in signature.parameters.values()
    ]
    name = "rate_limit_"
    while name in signature.parameters:
        name += "_"
    own = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=Depends(limit.solved), annotation=Any)
    at = len(parameters) - any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    parameters.insert(at, own)
    result = _evaluated(signature.return_annotation, namespace)
    return name, signature.replace(parameters=parameters, return_annotation=result)


def _evaluated(annotation: Any, namespace: dict[str, Any]) -> Any:
    """An annotation that is a text (`from __future__ import annotations`), read where it was written, if it can be."""
    if isinstance(annotation, str):
        try:
            return eval(annotation, namespace)
        except Exception:  # a name that only type checkers know: FastAPI says what it makes of it
            return annotation
    return annotation
