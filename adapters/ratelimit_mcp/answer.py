"""What a client is answered when its call does not reach the application: HTTP and JSON-RPC in one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from ratelimit import ConfigurationError, Decision
from ratelimit.headers import error_body
from ratelimit_mcp.asgi import Message, Send
from ratelimit_mcp.calls import RequestId, RpcBody
from ratelimit_mcp.refusal import RefusalError

ERROR_CODE = 429
"""The JSON-RPC code of a denial. JSON-RPC and MCP keep -32768 to -32000 for themselves."""


MAX_ERRORS = 1000
"""Ids of one batch that are answered singly: a refusal must not be many times as large as what is refused."""


def valid_error_code(code: int) -> int:
    """`code` if an application may use it for its own errors, else a `ConfigurationError`."""
    if type(code) is not int or -32768 <= code <= -32000:
        raise ConfigurationError(f"error_code {code!r}: use a whole number outside of -32768 to -32000")
    return code


def denial_error(decision: Decision, code: int) -> dict[str, Any]:
    """The JSON-RPC error of a denial. Both waits in its `data` are null when waiting will not help."""
    return {
        "code": code,
        "message": decision.exceeded_message(),
        "data": {
            "retry_after": decision.retry_after_seconds,
            "retry_after_ms": error_body(decision)["error"]["details"]["retry_after_ms"],
            "limit": decision.limit,
            "rule": decision.rule,
        },
    }


def denial_body(body: RpcBody, error: dict[str, Any]) -> Any:
    """`error` under the id of the call; for a batch an array, one for every request's id.

    One error under null stands for all where there is no id (notifications) and for more than `MAX_ERRORS` ids.
    """
    ids = [call.id for call in body.calls if call.is_request]
    if body.batch and 0 < len(ids) <= MAX_ERRORS:
        return [_error_response(request_id, error) for request_id in ids]
    return _error_response(None if body.batch or not ids else ids[0], error)


async def refuse(send: Send, refusal: RefusalError) -> None:
    """Answer a body that was not looked at or not understood."""
    error = {"code": refusal.code, "message": str(refusal)}
    await answer(send, refusal.status, _error_response(None, error), refusal.headers)


async def answer(send: Send, status: int, content: Any, headers: Mapping[str, str]) -> None:
    """A complete JSON response that no cache keeps."""
    body = json.dumps(content, separators=(",", ":")).encode()
    own = {"content-type": "application/json", "content-length": str(len(body)), "cache-control": "no-store"}
    await send({"type": "http.response.start", "status": status, "headers": _raw({**own, **headers})})
    await send({"type": "http.response.body", "body": body})


def with_headers(send: Send, headers: Sequence[tuple[bytes, bytes]]) -> Send:
    """A `send` that adds `headers` to the response the application starts."""
    if not headers:
        return send

    def send_with_headers(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        return send(message)  # the server's own coroutine: another one around each message would only cost

    return send_with_headers


def _error_response(request_id: RequestId, error: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
