"""The JSON-RPC calls in a request's body, as whatever reads the body next will see them.

Rules:
- The body decides, unless the application is known to refuse headers that differ from it (see `routing`).
- What cannot be parsed here is refused, not passed on: another parser might read a call in it.
- So is a message with a member twice, and `params` or arguments that are looked at: parsers differ in which they keep.
- UTF-8 only, as MCP requires. A byte-order mark is skipped.
- Arrays (batches) are read to any depth: a call in a nested array counts like any other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from ratelimit_mcp.refusal import INVALID_REQUEST, PARSE_ERROR, RefusalError

RequestId: TypeAlias = str | int | None

NAMED: Final[Mapping[str, str]] = MappingProxyType(
    {"tools/call": "name", "prompts/get": "name", "resources/read": "uri", "resources/subscribe": "uri"}
)
"""The methods that ask for one tool, prompt or resource, and the member of `params` that names it."""

# Objects become tuples of (name, value) pairs, arrays lists: a member that occurs twice is still there.
_DECODER = json.JSONDecoder(object_pairs_hook=tuple)


@dataclass(frozen=True, slots=True)
class RpcCall:
    """One JSON-RPC request or notification. `name` is the tool, prompt or resource it asks for, None for other methods."""

    method: str
    id: RequestId
    is_request: bool
    name: str | None = None
    raw_arguments: Any = field(default=(), compare=False)

    def arguments(self) -> Mapping[str, Any]:
        """What the call hands on to its tool or prompt, not validated; empty if that is no object. Raises `RefusalError`."""
        try:
            found = _plain(self.raw_arguments)
        except RecursionError:
            raise RefusalError(400, PARSE_ERROR, "Parse error") from None
        return found if isinstance(found, Mapping) else {}


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


def call_of(method: str, params: object, request_id: object = None) -> RpcCall:
    """A request that a server has parsed itself: `params` is the mapping that it found, or something else."""
    members = params if isinstance(params, Mapping) else {}
    name = members.get(NAMED.get(method, ""))
    name = name if isinstance(name, str) else None
    return RpcCall(method, _echoable(request_id), True, name, members.get("arguments"))


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
    request_id, is_request, member = _echoable(message.get("id")), "id" in message, NAMED.get(method)
    params = message.get("params")
    if member is None or not isinstance(params, tuple):
        return RpcCall(method, request_id, is_request)
    found = _members(params)
    name = found.get(member)
    return RpcCall(method, request_id, is_request, name if isinstance(name, str) else None, found.get("arguments", ()))


def _members(pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """An object's members by name; refused if one occurs twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RefusalError(400, INVALID_REQUEST, "Invalid request: a member occurs twice")
    return found


def _plain(value: Any) -> Any:
    """A decoded value with its objects as dicts again."""
    if isinstance(value, tuple):
        return {name: _plain(member) for name, member in _members(value).items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _echoable(request_id: Any) -> RequestId:
    """`request_id` if JSON-RPC over MCP knows ids of its kind, else None."""
    return request_id if isinstance(request_id, (str, int)) and not isinstance(request_id, bool) else None
