"""An ASGI application that explains to the requester what its own request counts as.

    Mount("/limits", ExplainEndpoint())                  # Starlette; app.mount(...) in FastAPI

Rules:
- Not found unless `RATELIMIT_EXPLAIN` is on; never kept by a cache.
- Nothing in the request names another caller: `rule`, `path` and `method` in the query say what is asked about, not for whom.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import parse_qs

from ratelimit import ConfigurationError, Limiter, get_limiter
from ratelimit.answers import Answer
from ratelimit.asgi import Receive, Scope, Send, header, header_lines, send_answer
from ratelimit.explain import aexplain, known_rule
from ratelimit.paths import PathRules
from ratelimit_asgi.caller import User, aidentify, checked_user

_METHODS: Final = ("GET", "HEAD")
_QUERY: Final = 4_096
"""Characters of a query that are read."""


class ExplainEndpoint:
    """What a request counts as: address, identity, and with `?rule=` or `?path=` (and `method=`) the budget it spends.

    `paths` are the application's path rules, to look `?path=` up. `user` tells who calls from the scope, as a plain function
    or a coroutine function: a user, an `Identity`, or None for the scope's own user. `limiter` is the process's unless given.
    JSON, or text for `Accept: text/plain`.
    """

    def __init__(
        self,
        paths: PathRules | None = None,
        *,
        user: User | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        if paths is not None and not isinstance(paths, PathRules):
            raise ConfigurationError(f"paths={paths!r}: expected PathRules([PathRule('/prefix', rule), ...])")
        self._paths = paths
        self._user = checked_user(user)
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send_answer(send, _private(await self._answer(scope), scope["method"]))
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _answer(self, scope: Scope) -> Answer:
        limiter = self._limiter or get_limiter()
        if not limiter.settings.explain:
            return _text(404, "Not Found")
        if scope["method"] not in _METHODS:
            answer = _text(405, "Method Not Allowed")
            answer.headers["Allow"] = ", ".join(_METHODS)
            return answer
        try:
            asked = self._asked(scope, limiter)
        except ConfigurationError as error:
            return _json(400, {"error": {"code": "BAD_REQUEST", "message": str(error)}})
        identity, client = await aidentify(self._user, scope, scope, limiter.settings), scope.get("client")
        peer = client[0] if client else None
        found = await aexplain(scope.get("headers") or (), peer, identity, limiter=limiter, **asked)
        return _text(200, f"{found}\n") if _prefers_text(scope) else _json(200, found.as_dict())

    def _asked(self, scope: Scope, limiter: Limiter) -> dict[str, Any]:
        query = (scope.get("query_string") or b"")[:_QUERY].decode("latin-1")
        given = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
        rule, path, method = given.get("rule"), given.get("path"), given.get("method", "GET").upper()
        # What callables of a path's rule are asked about.
        other = scope if path is None else {**scope, "path": path, "root_path": "", "method": method}
        return {
            "rule": None if rule is None else known_rule(rule, limiter),
            "paths": self._paths,
            "path": path,
            "method": method,
            "host": header(scope, "host") or "",
            "arguments": lambda name: (other,),
        }


def _prefers_text(scope: Scope) -> bool:
    """Whether `Accept` names text before JSON."""
    accepted = b",".join(header_lines(scope, b"accept")).decode("latin-1").lower()
    kinds = [one.partition(";")[0].strip() for one in accepted.split(",")]
    wanted = [kind for kind in kinds if kind in ("text/plain", "application/json", "*/*")]
    return bool(wanted) and wanted[0] == "text/plain"


def _text(status: int, text: str) -> Answer:
    return Answer(status, {"Content-Type": "text/plain; charset=utf-8"}, text.encode())


def _json(status: int, content: dict[str, Any]) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(content, indent=2).encode())


def _private(answer: Answer, method: str) -> Answer:
    """`answer` as no cache may keep it; without its body for HEAD, as some servers expect it."""
    headers = {
        **answer.headers,
        "Content-Length": str(len(answer.body)),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return Answer(answer.status, headers, b"" if method == "HEAD" else answer.body)
