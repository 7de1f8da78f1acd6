"""The start of an ASGI application: it fails when the settings cannot be used, instead of every request after it.

Rules:
- The application starts first: it may set the process's limiter meanwhile, and what settings name is imported by then.
- Limits that are off look at nothing but the settings themselves.
"""

from __future__ import annotations

from ratelimit.answers import replacement
from ratelimit.asgi import ASGIApp, Message, Receive, Scope, Send
from ratelimit.engine import Limiter, get_limiter
from ratelimit.errors import ConfigurationError

_COMPLETE, _FAILED = "lifespan.startup.complete", "lifespan.startup.failed"


async def start_checked(app: ASGIApp, scope: Scope, receive: Receive, send: Send, limiter: Limiter | None) -> None:
    """Hands a lifespan on to `app`. A setting that cannot be used makes the start fail: servers then end."""
    told = False

    async def checking(message: Message) -> None:
        nonlocal told
        if message["type"] == _COMPLETE:
            _check(limiter)  # raised inside the application, which then puts away what it has opened
        told = told or message["type"] in (_COMPLETE, _FAILED)
        await send(message)

    try:
        await app(scope, receive, checking)
    except ConfigurationError as error:
        if not told:  # an exception alone would be taken for an application that has no lifespan
            await send({"type": _FAILED, "message": str(error)})
        raise


def _check(limiter: Limiter | None) -> None:
    """Raises `ConfigurationError` for a setting that no request could be counted or answered with."""
    settings = (limiter or get_limiter()).settings
    if not settings.disable:
        replacement(settings.answer)
