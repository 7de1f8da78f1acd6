"""The JSON-RPC calls in a request's body, as whatever reads the body next will see them.

Rules:
- The body decides, never a header: `Mcp-Method` and `Mcp-Name` may be absent or wrong.
- What cannot be parsed here is refused, not passed on: another parser might read a call in it.
- So is a message, or the `params` of a `tools/call`, with a member twice: parsers differ in which they keep.
- UTF-8 only, as MCP requires. A byte-order mark is skipped.
- Arrays (batches) are read to any depth: a call in a nested array counts like any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ratelimit_mcp.refusal import INVALID_REQUEST, PARSE_ERROR, RefusalError

RequestId: TypeAlias = str | int | None

# Objects become tuples of (name, value) pairs, arrays lists: a member that occurs twice is still there.
_DECODER = json.JSONDecoder(object_pairs_hook=tuple)


@dataclass(frozen=True, slots=True)
class RpcCall:
    """One JSON-RPC request or notification. `tool` is the name in a `tools/call`, None for other methods."""

    method: str
    id: RequestId
    is_request: bool
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class RpcBody:
    """Every call in one body. `batch` tells an array from a single message."""

    calls: Sequence[RpcCall] = ()
    batch: bool = False


def parse_body(body: bytes) -> RpcBody:
    """The calls in `body`, none if it is blank or JSON that holds no call. Raises `RefusalError`."""
    if not body.strip():
        return RpcBody()
    try:
        payload = _DECODER.decode(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):  # bad UTF-8, bad JSON, an endless number; nested too deep
        raise RefusalError(400, PARSE_ERROR, "Parse error") from None
    return RpcBody([_call(message) for message in _messages(payload)], isinstance(payload, list))


def _messages(payload: Any) -> Iterator[dict[str, Any]]:
    """The JSON-RPC messages with a method, in order. Responses and what is no message are left out."""
    pending = [payload]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending.extend(reversed(value))
        elif isinstance(value, tuple):
            message = _members(value)
            if isinstance(message.get("method"), str):
                yield message


def _call(message: dict[str, Any]) -> RpcCall:
    method: str = message["method"]
    tool = _tool(message.get("params")) if method == "tools/call" else None
    return RpcCall(method, _echoable(message.get("id")), "id" in message, tool)


def _tool(params: Any) -> str | None:
    name = _members(params).get("name") if isinstance(params, tuple) else None
    return name if isinstance(name, str) else None


def _members(pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """An object's members by name; refused if one occurs twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RefusalError(400, INVALID_REQUEST, "Invalid request: a member occurs twice")
    return found


def _echoable(request_id: Any) -> RequestId:
    """`request_id` if JSON-RPC over MCP knows ids of its kind, else None."""
    return request_id if isinstance(request_id, (str, int)) and not isinstance(request_id, bool) else None
