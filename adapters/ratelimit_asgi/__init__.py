"""Rate limits on HTTP and WebSocket in any ASGI application; dependencies and decorators for FastAPI and Starlette.

    app.add_middleware(RateLimitMiddleware, paths=[PathRule("/api", "100/m")])

    @app.get("/answer", dependencies=[Depends(limit("AI_QUERY"))])

Importing it needs no framework; what is for Starlette and FastAPI is loaded when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from ratelimit.asgi import WS_CLOSE_RATE_LIMITED
from ratelimit.paths import PathRule, PathRules
from ratelimit_asgi.middleware import RateLimitMiddleware

if TYPE_CHECKING:
    from ratelimit_asgi.connections import WebsocketConnectionLimit, WebsocketMessageLimit
    from ratelimit_asgi.decorator import endpoint_ratelimit
    from ratelimit_asgi.endpoint import limit
    from ratelimit_asgi.errors import RateLimited
    from ratelimit_asgi.messages import check_ws_rate_limit
    from ratelimit_asgi.openapi import document_limits

__all__ = [
    "WS_CLOSE_RATE_LIMITED",
    "PathRule",
    "PathRules",
    "RateLimitMiddleware",
    "RateLimited",
    "WebsocketConnectionLimit",
    "WebsocketMessageLimit",
    "check_ws_rate_limit",
    "document_limits",
    "endpoint_ratelimit",
    "limit",
]

_LATER: Final = {
    "RateLimited": "errors",
    "WebsocketConnectionLimit": "connections",
    "WebsocketMessageLimit": "connections",
    "check_ws_rate_limit": "messages",
    "document_limits": "openapi",
    "endpoint_ratelimit": "decorator",
    "limit": "endpoint",
}


def _leave_out(names: list[str]) -> None:
    """Takes from `names` what cannot be imported here, for `from ratelimit_asgi import *`."""
    if find_spec("starlette") is None:
        names[:] = [name for name in names if name not in _LATER]
    elif find_spec("fastapi") is None:
        names.remove("document_limits")


_leave_out(__all__)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = found
    return found
