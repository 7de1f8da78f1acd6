"""A denial as an exception that Starlette and FastAPI turn into the answer, without anything being registered.

Rules:
- A handler of the application's own wins: for status 429, for the exception or one of its bases, for FastAPI's
  `HTTPException`. Only frameworks' defaults are passed over.
- A handshake is refused by `WebSocketRateLimited`, for a handler that makes HTTP responses has no use for a WebSocket.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException, WebSocketException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketState

from ratelimit import Decision, RateLimitExceeded
from ratelimit.answers import Answer
from ratelimit.asgi import WS_CLOSE_RATE_LIMITED, Scope, send_refusal

_DEFAULTS: Final = frozenset({"starlette.middleware.exceptions", "fastapi.exception_handlers"})
"""Where the frameworks' own handlers are."""


class RateLimited(RateLimitExceeded, HTTPException):
    """A denied request: status 429, the headers of the answer, and the figures in `decision`."""

    def __init__(self, decision: Decision, answer: Answer) -> None:
        self.decision = decision
        self.answer = answer
        headers = {name: value for name, value in answer.headers.items() if name.lower() != "content-type"}
        HTTPException.__init__(self, answer.status, decision.exceeded_message(), headers)

    def __reduce__(self) -> tuple[type[RateLimited], tuple[object, ...]]:
        return type(self), (self.decision, self.answer)


class WebSocketRateLimited(RateLimitExceeded, WebSocketException):
    """A refused handshake: the denial's answer where the server can send one, else close code 4029 before it is accepted."""

    def __init__(self, decision: Decision, answer: Answer) -> None:
        self.decision = decision
        self.answer = answer
        WebSocketException.__init__(self, WS_CLOSE_RATE_LIMITED, decision.exceeded_message())

    def __reduce__(self) -> tuple[type[WebSocketRateLimited], tuple[object, ...]]:
        return type(self), (self.decision, self.answer)


def refusal(scope: Scope, decision: Decision, answer: Answer) -> RateLimited | WebSocketRateLimited:
    """The exception to raise on a connection; whoever catches it knows the answer."""
    if scope["type"] == "websocket":
        _have_answered(scope, WebSocketRateLimited, _refuse)
        return WebSocketRateLimited(decision, answer)
    _have_answered(scope, RateLimited, _answer)
    return RateLimited(decision, answer)


def as_response(answer: Answer) -> Response:
    """The answer as Starlette sends it."""
    return Response(answer.body, answer.status, answer.headers)


def _have_answered(scope: Scope, kind: type[Exception], handler: Any) -> None:
    """Has the application around the endpoint answer exceptions of this kind, if it has no handler of its own."""
    handlers = scope.get("starlette.exception_handlers")
    if handlers is not None and kind not in handlers[0]:
        handlers[0][kind] = _own_handler(handlers[0], kind) or handler


def _own_handler(handlers: Mapping[Any, Any], kind: type[Exception]) -> Any:
    bases: list[Any] = list(kind.__mro__)
    fastapi = sys.modules.get("fastapi.exceptions")  # not loaded: not used
    if fastapi is not None:
        bases.insert(-1, fastapi.HTTPException if issubclass(kind, HTTPException) else fastapi.WebSocketException)
    found = [handlers[base] for base in bases if base in handlers]
    return next((one for one in found if getattr(one, "__module__", None) not in _DEFAULTS), None)


async def _answer(_: HTTPConnection, error: RateLimited) -> Response:
    return as_response(error.answer)


async def _refuse(websocket: WebSocket, error: WebSocketRateLimited) -> None:
    if websocket.application_state is WebSocketState.CONNECTING:
        await send_refusal(websocket.scope, websocket.send, error.answer)
    else:
        await websocket.close(error.code)
