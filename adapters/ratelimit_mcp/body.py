"""A request's body: read once, up to a cap, and handed on as it came."""

from __future__ import annotations

from ratelimit_mcp.asgi import Message, Receive, Scope, declared_length, is_encoded
from ratelimit_mcp.refusal import INVALID_REQUEST, RefusalError


async def read_body(scope: Scope, receive: Receive, cap: int) -> bytes | None:
    """The whole body, None if the client left before its end.

    Raises `RefusalError` for a compressed body and for one above `cap` bytes; without reading it, if its
    headers tell. No more than `cap` bytes and one chunk are held.
    """
    if is_encoded(scope):
        plain = {"accept-encoding": "identity"}
        raise RefusalError(415, INVALID_REQUEST, "Send the body without a Content-Encoding", plain)
    if declared_length(scope) > cap:
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


def _too_large(cap: int) -> RefusalError:
    return RefusalError(413, INVALID_REQUEST, f"The request's body is larger than {cap} bytes")
