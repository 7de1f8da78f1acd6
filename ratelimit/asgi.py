"""What any ASGI application is given and gives, without a framework: who calls, for what, and how a call is turned down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, TypeAlias

from ratelimit.answers import Answer, denied_answer, request_id
from ratelimit.decision import Decision
from ratelimit.headers import RAW_NAMES
from ratelimit.identity import Identity, resolve, resolve_address
from ratelimit.settings import Settings

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

WS_CLOSE_RATE_LIMITED = 4029  # 4000-4999 are the application's own codes; 429 is HTTP's "too many requests"

_BODILESS: Final = frozenset({204, 304})
_ROUTED: Final = "route_handler"
"""Where Litestar's own middleware finds what its router chose: the path has lost its prefix by then."""
_LENGTHS: Final = frozenset(map(len, RAW_NAMES))
STARTS: Final = frozenset({"http.response.start", "websocket.http.response.start", "websocket.accept"})
"""What carries the headers of a response; a handshake's too."""


def scope_identity(scope: Scope, settings: Settings, user: Any = None) -> Identity:
    """The caller behind a scope: `user`, else its own user, its address, and its token (`scope["limit_token"]`).

    A user without `pk` and `id` is known by its `identity`, as Starlette's are. A scope may lack `client` (unix sockets,
    test clients), `user` (no auth middleware) or both. A token is there once the application has accepted one; what a client
    merely sent never is.
    """
    get = scope.get
    client, token = get("client"), get("limit_token")
    peer = client[0] if client else None
    user = get("user") if user is None else user
    if user is not None:
        user = _with_id(user)
    elif token is None:  # as most are: the short way
        found = resolve_address(peer, settings)
        if found is not None:
            return found
    return resolve(get("headers") or (), peer, user, token, settings=settings)


def route_path(scope: Scope) -> str:
    """The path as the application's router sees it: without the prefix that the application is mounted under."""
    path: str = scope.get("path") or ""
    if _ROUTED in scope:
        return path
    root: str = (scope.get("root_path") or "").rstrip("/")
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        return path[len(root) :]
    return path


def other_reading(scope: Scope) -> str | None:
    """What the path is for routers that take the prefix for a text and not for segments, None if that makes no difference.

    Below `/app`, Channels takes `/applogin` for `/login`, and so does Litestar, which even looks for the prefix further on.
    """
    path: str = scope.get("path") or ""
    root: str = (scope.get("root_path") or "").rstrip("/")
    if not root or root not in path or _ROUTED in scope:
        return None
    before, _, rest = path.partition(root)
    return None if not before and rest[:1] in ("", "/") else rest


def header_lines(scope: Scope, name: bytes) -> list[bytes]:
    """The value of every header line called `name` (in lower case)."""
    length = len(name)
    return [value for line, value in scope.get("headers") or () if len(line) == length and line.lower() == name]


def header(scope: Scope, name: str) -> str | None:
    """The first header line called `name`, None without one."""
    lines = header_lines(scope, name.lower().encode("latin-1"))
    return lines[0].decode("latin-1") if lines else None


def scope_facts(scope: Scope) -> Mapping[str, Any]:
    """What rules may know of a request or a connection: its path as the router sees it, and its method, if it has them.

    Routers take a path with a line end for the one without, Channels' one with slashes too many at its beginning: so do rules.
    """
    found: dict[str, Any] = {}
    if scope.get("path") is not None:
        path = route_path(scope).rstrip("\r\n")
        found["path"] = f"/{path.lstrip('/')}" if path.startswith("//") else path
    method = scope.get("method")
    return found if method is None else {**found, "method": method}


def denial_frame(decision: Decision) -> dict[str, object]:
    """What the client of an open WebSocket is told: the limit in words, and whole seconds to wait (null: waiting will not
    help)."""
    return {
        "type": "RATE_LIMITED",
        "error": f"Rate limit exceeded. {decision.describe()}.",
        "retry_after": decision.retry_after_seconds,
    }


def scope_answer(scope: Scope, decision: Decision, settings: Settings) -> Answer:
    """What a denied request or handshake is answered: see `denied_answer`."""
    return denied_answer(decision, settings, request_id(lambda name: header(scope, name)))


async def send_answer(send: Send, answer: Answer, prefix: str = "") -> None:
    """`answer` as the response to an HTTP request; with the prefix `"websocket."` as that to a handshake."""
    start = {"type": f"{prefix}http.response.start", "status": answer.status, "headers": _raw(answer)}
    await send(start)
    await send({"type": f"{prefix}http.response.body", "body": answer.body})


async def refuse_websocket(scope: Scope, receive: Receive, send: Send, answer: Answer) -> None:
    """Turns a handshake down: with `answer` where the server can send one (Uvicorn can), else by closing before the
    connection is accepted, which clients see as status 403."""
    if (await receive())["type"] == "websocket.connect":
        await send_refusal(scope, send, answer)


async def send_refusal(scope: Scope, send: Send, answer: Answer) -> None:
    """`refuse_websocket` for a handshake whose first message was received already."""
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await send_answer(send, answer, "websocket.")
    else:
        await send({"type": "websocket.close", "code": WS_CLOSE_RATE_LIMITED})


def with_headers(send: Send, headers: Sequence[tuple[bytes, bytes]]) -> Send:
    """A `send` that adds the limit headers to the response the application starts, but for those it sets itself."""
    if not headers:
        return send

    def send_with_headers(message: Message) -> Awaitable[None]:
        # The server's own coroutine: another one around each message would only cost.
        return send(headed(message, headers) if message["type"] in STARTS else message)

    return send_with_headers


def headed(message: Message, headers: Sequence[tuple[bytes, bytes]]) -> Message:
    """The start of a response with the limit headers too, but for those that it has already."""
    own: list[Any] = list(message.get("headers") or ())
    for name, _ in own:
        if len(name) in _LENGTHS and name.lower() in RAW_NAMES:
            known = [name.lower() for name, _ in own]
            headers = [line for line in headers if line[0] not in known]
            break
    return {**message, "headers": [*own, *headers]}


def _raw(answer: Answer) -> list[tuple[bytes, bytes]]:
    lines = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
    if answer.status not in _BODILESS and not any(name == b"content-length" for name, _ in lines):
        lines.append((b"content-length", b"%d" % len(answer.body)))
    return lines


class _Named:
    """A user that is known by its name."""

    __slots__ = ("id", "is_authenticated", "is_superuser", "is_usage_capped")

    def __init__(self, user: Any, name: str) -> None:
        self.id = name
        self.is_authenticated = user.is_authenticated
        self.is_superuser = getattr(user, "is_superuser", False)
        self.is_usage_capped = getattr(user, "is_usage_capped", False)


def _with_id(user: Any) -> Any:
    if isinstance(user, (str, int)) or getattr(user, "pk", None) is not None or getattr(user, "id", None) is not None:
        return user
    try:
        name = getattr(user, "identity", None)
    except NotImplementedError:  # a Starlette user before there was one; its own kind has a name
        name = getattr(user, "username", None)
    return _Named(user, name) if isinstance(name, str) and name and hasattr(user, "is_authenticated") else user
