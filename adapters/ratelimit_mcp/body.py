"""A request's body: whether it is one to read, read once, up to a cap, and handed on as it came."""

from __future__ import annotations

from ratelimit.asgi import Message, Receive, Scope, header_lines
from ratelimit_mcp.refusal import INVALID_REQUEST, RefusalError

_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})


def may_hold_a_call(scope: Scope, *, any_content_type: bool = False) -> bool:
    """Whether the request's body could be JSON that an MCP application runs.

    A missing Content-Type counts as JSON, and so does one JSON line among several: which of them the
    application heeds is not known here. With `any_content_type` every body counts, whatever it says it is.
    """
    if scope.get("method", "").upper() in _BODILESS:
        return False
    declared = header_lines(scope, b"content-type")
    return any_content_type or not declared or any(b"json" in value.lower() for value in declared)


async def read_body(scope: Scope, receive: Receive, cap: int) -> bytes | None:
    """The whole body, None if the client left before its end.

    Raises `RefusalError` for a compressed body and for one above `cap` bytes; without reading it, if its
    headers tell. No more than `cap` bytes and one chunk are held.
    """
    if _is_encoded(scope):
        plain = {"accept-encoding": "identity"}
        raise RefusalError(415, INVALID_REQUEST, "Send the body without a Content-Encoding", plain)
    if _declared_length(scope) > cap:
        raise _too_large(cap)
    chunks = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunks += message.get("body", b"")
        if len(chunks) > cap:
            raise _too_large(cap)
        if not message.get("more_body", False):
            return bytes(chunks)


def replayed(body: bytes | None, receive: Receive) -> Receive:
    """A `receive` that first gives `body` again, in one message, and from then on is the server's own.

    For a client that has left (None), it first says so: the half of a body that did arrive is not shown,
    because an application that takes the disconnect for the body's end would run a call that nobody counted.
    """
    gone: Message = {"type": "http.disconnect"}
    first = [gone if body is None else {"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return first.pop() if first else await receive()

    return receive_again


def _is_encoded(scope: Scope) -> bool:
    """Whether the body is compressed, or otherwise not the bytes the application will parse."""
    return any(value.strip().lower() not in (b"", b"identity") for value in header_lines(scope, b"content-encoding"))


def _declared_length(scope: Scope) -> int:
    """The largest Content-Length the request gives, 0 if it gives none that is a number."""
    # More digits than any body has would be more than int() reads; the first ones tell enough.
    return max((int(value[:18]) for value in header_lines(scope, b"content-length") if value.isdigit()), default=0)


def _too_large(cap: int) -> RefusalError:
    return RefusalError(413, INVALID_REQUEST, f"The request's body is larger than {cap} bytes")
