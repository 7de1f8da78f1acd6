"""The applications that `asgi.py` asks, all in one Uvicorn worker: the path says which. Each answers `ok`.

The engine stands before them as `RateLimitMiddleware`, with one rule for all paths.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from importlib.util import find_spec
from typing import Any

from benchmarks.rates import CATEGORY, LIMIT, WINDOW
from ratelimit import Limiter, RateLimits
from ratelimit.settings import Settings
from ratelimit_asgi import PathRule, RateLimitMiddleware

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

REDIS = os.environ.get("BENCHMARK_REDIS", "")
START = {"type": "http.response.start", "status": 200}
BODY = {"type": "http.response.body", "body": b"ok"}

RateLimits.add(CATEGORY, WINDOW)


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    await send({**START, "headers": [(b"content-type", b"text/plain"), (b"content-length", b"2")]})
    await send(BODY)


async def three_lines(scope: Scope, receive: Receive, send: Send) -> None:
    """`bare` with three more header lines: what a server takes to send what the engine would tell."""
    own = [(b"content-type", b"text/plain"), (b"content-length", b"2")]
    limit, remaining = (b"x-ratelimit-limit", b"1000000000"), (b"x-ratelimit-remaining", b"999999999")
    await send({**START, "headers": [*own, limit, remaining, (b"x-ratelimit-reset", b"3600")]})
    await send(BODY)


def limited(app: App, store: str, style: str = "none") -> App:
    """`app` behind the middleware, with limit headers of that style. An outage would be a denial, which ends the run."""
    limiter = Limiter(store, settings=Settings(headers=style, fail_open=False))
    return RateLimitMiddleware(app, [PathRule("/", CATEGORY)], limiter=limiter)


def checking(app: App, store: str) -> App:
    """`app` behind no more than a check of the address: no rule by path, no user, nothing noted."""
    limiter = Limiter(store, settings=Settings(fail_open=False))

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        if await limiter.acheck(CATEGORY, scope["client"][0]):
            await app(scope, receive, send)

    async def at_once(scope: Scope, receive: Receive, send: Send) -> None:
        if limiter.check(CATEGORY, scope["client"][0]):
            await app(scope, receive, send)

    return at_once if store.startswith("memory") else waiting


def asking(app: App, ask: Callable[[str], Awaitable[Any]]) -> App:
    """`app` behind anything that takes the caller's address, and gives something true when the call may go on."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if await ask(scope["client"][0]):
            await app(scope, receive, send)
        else:
            await send({**START, "status": 429, "headers": [(b"content-length", b"0")]})
            await send({**BODY, "body": b""})

    return answer


def _limits(url: str) -> Callable[[str], Awaitable[bool]]:
    from limits import parse
    from limits.aio.strategies import FixedWindowRateLimiter
    from limits.storage import storage_from_string

    options = {} if url.startswith("async+memory") else {"implementation": "redispy"}
    return partial(FixedWindowRateLimiter(storage_from_string(url, **options)).hit, parse(f"{LIMIT}/hour"))


def _starlette(path: str, how: str, url: str = "memory://") -> App:
    """A Starlette application with one route: bare, limited by the engine's decorator, or by slowapi in one of its ways."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def answer(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    if how == "bare":
        return Starlette(routes=[Route(path, answer)])
    if how == "endpoint":
        from ratelimit_asgi import endpoint_ratelimit

        limiter = Limiter(url, settings=Settings(fail_open=False))
        return Starlette(routes=[Route(path, endpoint_ratelimit(CATEGORY, limiter=limiter)(answer))])
    from slowapi import Limiter as SlowApi
    from slowapi.middleware import SlowAPIASGIMiddleware, SlowAPIMiddleware
    from slowapi.util import get_remote_address

    rate = f"{LIMIT}/hour"
    slowapi = SlowApi(get_remote_address, [rate], storage_uri=url, headers_enabled=how.endswith("headers"))
    app = Starlette(routes=[Route(path, slowapi.limit(rate)(answer) if how.startswith("decorator") else answer)])
    app.state.limiter = slowapi
    if not how.startswith("decorator"):
        app.add_middleware(SlowAPIASGIMiddleware if how == "asgi" else SlowAPIMiddleware)
    return app


def _apps() -> dict[str, App]:
    apps = {
        "/bare": bare,
        "/three-lines": three_lines,
        "/memory-check": checking(bare, "memory://"),
        "/memory": limited(bare, "memory://"),
        "/memory-headers": limited(bare, "memory://", "x"),
    }
    if REDIS:
        from redis.asyncio import Redis

        apps["/redis-check"] = checking(bare, REDIS)
        apps["/redis"] = limited(bare, REDIS)
        apps["/redis-headers"] = limited(bare, REDIS, "x")
        apps["/redis-incr"] = asking(bare, Redis.from_url(REDIS).incr)
    if find_spec("limits"):
        apps["/memory-limits"] = asking(bare, _limits("async+memory://"))
        if REDIS:
            apps["/redis-limits"] = asking(bare, _limits(f"async+{REDIS}"))
    if find_spec("slowapi"):
        starlette = _starlette("/starlette", "bare")
        apps["/starlette"] = starlette
        for path in ("/starlette-memory", "/starlette-memory-headers"):
            style = "x" if path.endswith("headers") else "none"
            apps[path] = limited(_starlette(path, "bare"), "memory://", style)
        apps["/starlette-decorator"] = _starlette("/starlette-decorator", "endpoint")
        for how in ("decorator", "decorator-headers", "asgi", "default"):
            apps[f"/slowapi-memory-{how}"] = _starlette(f"/slowapi-memory-{how}", how)
        if REDIS:
            apps["/starlette-redis"] = limited(_starlette("/starlette-redis", "bare"), REDIS)
            apps["/slowapi-redis-decorator"] = _starlette("/slowapi-redis-decorator", "decorator", REDIS)
    return apps


APPS = _apps()


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await APPS[scope["path"]](scope, receive, send)
