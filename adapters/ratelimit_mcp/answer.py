"""What a client is answered when its call does not reach the application: HTTP and JSON-RPC in one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ratelimit import ConfigurationError, Decision
from ratelimit.answers import Answer, exposed, replaced
from ratelimit.asgi import Send, send_answer
from ratelimit.headers import error_body
from ratelimit.settings import Settings
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
    return {"code": code, "message": decision.exceeded_message(), "data": denial_data(decision)}


def denial_data(decision: Decision) -> dict[str, Any]:
    """What a client's code may want to know of a denial."""
    return {
        "retry_after": decision.retry_after_seconds,
        "retry_after_ms": error_body(decision)["error"]["details"]["retry_after_ms"],
        "limit": decision.limit,
        "rule": decision.rule,
    }


def denial_text(decision: Decision) -> str:
    """A denial in words for a model, the wait included."""
    wait = decision.retry_after_seconds
    message = decision.exceeded_message()
    return f"{message} Retrying will not help." if wait is None else f"{message} Retry after {wait} seconds."


def denial_body(body: RpcBody, error: dict[str, Any]) -> Any:
    """`error` under the id of the call; for a batch an array, one for every request's id.

    One error under null stands for all where there is no id (notifications) and for more than `MAX_ERRORS` ids.
    """
    ids = [call.id for call in body.calls if call.is_request]
    if body.batch and 0 < len(ids) <= MAX_ERRORS:
        return [_error_response(request_id, error) for request_id in ids]
    return _error_response(None if body.batch or not ids else ids[0], error)


def denial_answer(decision: Decision, body: RpcBody, code: int, settings: Settings) -> Answer:
    """The answer to denied calls: 429 and JSON-RPC errors, unless `RATELIMIT_ANSWER` replaces it."""
    shown = decision.headers(settings.headers)
    headers = {**shown, "access-control-expose-headers": exposed(shown)}
    answer = _answer(429, denial_body(body, denial_error(decision, code)), headers)
    return replaced(decision, answer, settings)


async def send_sized(send: Send, answer: Answer) -> None:
    """`answer` as the response, with the length of its body."""
    headers = {name: value for name, value in answer.headers.items() if name.lower() != "content-length"}
    await send_answer(send, answer._replace(headers={**headers, "content-length": str(len(answer.body))}))


async def refuse(send: Send, refusal: RefusalError) -> None:
    """Answer a body that was not looked at or not understood."""
    error = {"code": refusal.code, "message": str(refusal)}
    await send_sized(send, _answer(refusal.status, _error_response(refusal.request_id, error), refusal.headers))


def _answer(status: int, content: Any, headers: Mapping[str, str]) -> Answer:
    """A complete JSON response that no cache keeps."""
    body = json.dumps(content, separators=(",", ":")).encode()
    return Answer(status, {"content-type": "application/json", "cache-control": "no-store", **headers}, body)


def _error_response(request_id: RequestId, error: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": error}
