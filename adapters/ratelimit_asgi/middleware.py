"""Limits by path for any ASGI application, over HTTP and at WebSocket handshakes.

Rules:
- Only `http` and `websocket` scopes are looked at. Everything else passes untouched, and so does all when limits are off.
- Nothing is read: `receive` is the server's own, and `send` too unless the settings ask for limit headers.
- A request that is refused never reaches the application; a handshake that is refused is never accepted.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Final

from ratelimit import ConfigurationError, Decision, Limiter, get_limiter
from ratelimit.asgi import (
    ASGIApp,
    Receive,
    Scope,
    Send,
    header,
    other_reading,
    refuse_websocket,
    route_path,
    scope_answer,
    scope_facts,
    scope_identity,
    send_answer,
)
from ratelimit.paths import PathRule, PathRules, is_preflight
from ratelimit.settings import Settings
from ratelimit.spent import SPENT
from ratelimit_asgi.caller import User, aidentify, checked_user
from ratelimit_asgi.counted import Limit, showing

_REMEMBERED: Final = 1024
_LONGEST: Final = 256
"""Characters of a path, method and host that are worth remembering their rule by."""


class RateLimitMiddleware:
    """ASGI middleware: the rule with the longest prefix of a request's path limits it.

    `paths` are the rules, `exempt` prefixes that are not limited; or `paths` is a `PathRules`, which has both. Without
    rules it only adds the limit headers of what endpoints count. `user` tells who calls from the scope, as a plain function
    or a coroutine function; what it gives wins over `scope["user"]`. `limiter` defaults to the process's own. A CORS preflight
    counts only by a rule whose methods name OPTIONS.

    Raises `ConfigurationError` for what cannot be used, when it is made.
    """

    def __init__(
        self,
        app: ASGIApp,
        paths: Iterable[PathRule] | PathRules = (),
        exempt: str | Iterable[str] = (),
        *,
        user: User | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        self.app = app
        self._user = checked_user(user)
        self._limiter = limiter
        self._rules = rules = _path_rules(paths, exempt)
        self._limits = {
            kind: {one: Limit(one.guard(scope_facts, kind, limiter)) for one in rules.rules}
            for kind in ("http", "websocket")
        }
        self._of_preflights = {limit for rule, limit in self._limits["http"].items() if "OPTIONS" in rule.methods}
        self._by_host = rules.has_hosts
        self._remembered = lru_cache(_REMEMBERED)(self._find)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind != "http" and kind != "websocket":
            await self.app(scope, receive, send)
            return
        limiter = self._limiter or get_limiter()
        settings = limiter.settings
        if settings.disable:
            await self.app(scope, receive, send)
            return
        limit = self._limit(scope, kind)
        if limit is not None:
            user = self._user
            identity = await aidentify(user, scope, scope, settings) if user else scope_identity(scope, settings)
            if SPENT in scope:
                decision = await limit.acheck(scope, identity, scope)
            else:  # as `acheck` does
                at_hand = limit.at_hand(identity)
                decision = await limit.ask(identity, scope) if at_hand is None else at_hand
                limit.note(scope, identity, decision, scope)
            if not decision.allowed:
                await _refuse(scope, receive, send, decision, settings)
                return
        if settings.headers != "none":
            send = showing(scope, send, settings.headers)
        await self.app(scope, receive, send)

    def _limit(self, scope: Scope, kind: str) -> Limit | None:
        """The limit that means the connection."""
        method = scope["method"] if kind == "http" else ""
        path: str = scope["path"]
        if self._by_host or scope.get("root_path"):
            limit = self._limit_of(scope, kind, method)
        elif len(path) + len(method) <= _LONGEST:  # clients write both
            limit = self._remembered(kind, path, method)
        else:
            limit = self._find(kind, path, method)
        if method == "OPTIONS" and limit not in self._of_preflights and is_preflight(method, partial(header, scope)):
            return None
        return limit

    def _limit_of(self, scope: Scope, kind: str, method: str) -> Limit | None:
        """`_limit` where more than path and method tells."""
        host = (header(scope, "host") or "") if self._by_host else ""
        written = len(scope["path"]) + len(method) + len(host)
        find = self._remembered if written <= _LONGEST else self._find
        if scope.get("root_path"):
            return find(kind, route_path(scope), method, host, other_reading(scope))
        return find(kind, scope["path"], method, host)

    def _find(self, kind: str, path: str, method: str, host: str = "", reading: str | None = None) -> Limit | None:
        rule = self._rules.find(path, method, host, reading)
        return None if rule is None else self._limits[kind][rule]


def _path_rules(paths: Iterable[PathRule] | PathRules, exempt: str | Iterable[str]) -> PathRules:
    if isinstance(paths, PathRule):
        raise ConfigurationError(f"paths={paths!r}: give a list of rules")
    if not isinstance(paths, PathRules):
        return PathRules(paths, exempt)
    if exempt:
        raise ConfigurationError(
            f"exempt={exempt!r} beside PathRules, which has its own: PathRules([...], exempt=[...])"
        )
    return paths


async def _refuse(scope: Scope, receive: Receive, send: Send, decision: Decision, settings: Settings) -> None:
    answer = scope_answer(scope, decision, settings)
    if scope["type"] == "websocket":
        await refuse_websocket(scope, receive, send, answer)
    else:
        await send_answer(send, answer)
