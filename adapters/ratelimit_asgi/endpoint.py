"""A limit on an endpoint of Starlette or FastAPI: asked for a connection, and answered by an exception when it is denied.

`limit(...)` makes one that FastAPI calls as a dependency; `decorator.py` puts one around an endpoint.
"""
# Annotations are not texts here: FastAPI reads them, and older ones cannot read an object's.

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.websockets import WebSocket

from ratelimit import Decision, Identity, Limiter, Rate
from ratelimit.asgi import Scope, scope_answer, scope_facts
from ratelimit.guard import Attributes, Guard
from ratelimit.plan import RuleLike
from ratelimit.settings import Settings
from ratelimit_asgi.caller import User, aidentify, checked_user, identify
from ratelimit_asgi.counted import Limit, is_shown
from ratelimit_asgi.errors import refusal
from ratelimit_asgi.routes import own_group

_MOST_PLACES = 4096


class EndpointLimit:
    """A limit on an endpoint; called, a FastAPI dependency that gives the `Decision` or raises `RateLimited`."""

    def __init__(self, guard: Guard, user: User | None = None) -> None:
        """`guard` says what is counted, for no place yet; `user` tells who calls, as in `RateLimitMiddleware`."""
        self._guard = guard
        self._user = user
        # A rate counts for each route apart. What a function gives may be a policy, which has names of its own: it is told
        # of the route, and not made to count there.
        self._rate = guard.rate or (guard.rule if isinstance(guard.rule, Rate) else None)
        self._own = guard.group is None and self._rate is not None
        self._limits: dict[tuple[str, str], Limit] = {}

    @property
    def settings(self) -> Settings:
        """The settings of the limiter that is asked."""
        return self._guard.limiter.settings

    @property
    def needs_loop(self) -> bool:
        """Whether it can be asked in an event loop only."""
        return iscoroutinefunction(self._user)

    async def __call__(self, connection: HTTPConnection, response: Response) -> Decision:
        decision = await self.acheck(connection)
        several = connection.scope.get("limit_decision") is not decision
        for name, value in self.headers(connection.scope).items():
            if several or name not in response.headers:
                response.headers[name] = value
        return decision

    async def solved(self, connection: HTTPConnection, response: Response) -> HTTPConnection:
        """The same as a dependency of a decorated endpoint, which wants to know the connection."""
        await self(connection, response)
        return connection

    async def acheck(self, connection: HTTPConnection) -> Decision:
        """The decision on a connection that may go on. Raises `RateLimited` or `WebSocketRateLimited` for others."""
        settings = self.settings
        if settings.disable:
            return self._guard.limiter.unlimited("")
        scope = connection.scope
        identity = await aidentify(self._user, connection, scope, settings)
        return _allowed(scope, settings, await self._limit(scope).acheck(scope, identity, connection))

    def check(self, connection: HTTPConnection) -> Decision:
        """`acheck` where there is no event loop."""
        settings = self.settings
        if settings.disable:
            return self._guard.limiter.unlimited("")
        scope = connection.scope
        identity = identify(self._user, connection, scope, settings)
        return _allowed(scope, settings, self._limit(scope).check(scope, identity, connection))

    async def amessage(self, websocket: WebSocket) -> Decision:
        """The decision on what an open WebSocket was sent: each message counts."""
        if self.settings.disable:
            return self._guard.limiter.unlimited("")
        scope = websocket.scope
        return await self._limit(scope).ask(await aidentify(self._user, websocket, scope, self.settings), websocket)

    def headers(self, scope: Scope) -> dict[str, str]:
        """What a response is still to tell: nothing if a middleware does."""
        decision = scope.get("limit_decision")
        return {} if decision is None or is_shown(scope) else decision.headers(self.settings.headers)

    def _limit(self, scope: Scope) -> Limit:
        asked = callable(self._rate)
        place = (own_group(scope) if asked else own_group(scope, self._rate)) if self._own else ""
        found = self._limits.get((scope["type"], place))
        if found is None:
            if len(self._limits) >= _MOST_PLACES:
                self._limits = {}
            group = place if self._own and not asked else self._guard.group
            found = Limit(self._guard.placed(group, scope["type"]), place)
            self._limits[scope["type"], place] = found
        return found


def limit(
    rule: RuleLike | None = None,
    *,
    rate: RuleLike | Callable[[Any], RuleLike | None] | None = None,
    key: str | Callable[[Any], str | Identity] = "user_or_ip",
    cost: int | Callable[[Any], int] = 1,
    group: str | None = None,
    attributes: Attributes | None = None,
    user: User | None = None,
    limiter: Limiter | None = None,
) -> EndpointLimit:
    """A FastAPI dependency that limits what depends on it: `Depends(limit("AI_QUERY"))`. It gives the `Decision`.

    `rule` is a category, a `Rule`, a `Policy` or the name of one, whose budget every place that names it shares; `rate`
    gives each route a budget of its own, or all of them one in `group`. `key`, `cost`, `attributes` and a callable `rate`
    are as in `Guard`, `user` as in `RateLimitMiddleware`; callables get the connection (a `Request` or `WebSocket`).

    A denied call raises `RateLimited`, which is answered without a handler; a denied handshake is refused. One round trip,
    none if the middleware has counted the same limit for the same caller. Bad arguments are a `ConfigurationError` at once.
    """
    user = checked_user(user)
    guard = Guard(
        rule,
        rate=rate,
        key=key,
        group=group,
        cost=cost,
        attributes=attributes,
        facts=scope_facts,
        limiter=limiter,
    )
    return EndpointLimit(guard, user)


def _allowed(scope: Scope, settings: Settings, decision: Decision) -> Decision:
    if not decision.allowed:
        raise refusal(scope, decision, scope_answer(scope, decision, settings))
    return decision
