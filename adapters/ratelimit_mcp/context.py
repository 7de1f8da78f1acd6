"""Where a tool's code finds the HTTP request it answers."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

from ratelimit.asgi import Scope

mcp_scope: ContextVar[Scope | None] = ContextVar("mcp_scope", default=None)
"""The ASGI scope of the request being answered, None over stdio. `MCPRateLimit` sets it around the application.

In the SDK's stateful mode a handler runs in its session's task, which an earlier request started; the SDK (2.0 and
later) hands it the context of the request it answers, so that the scope is that request's and not the first one's.
"""


def current_scope(ctx: Any = None) -> Scope | None:
    """The scope of the request `ctx` belongs to, else the one in `mcp_scope`, else the one FastMCP knows."""
    return scope_of(ctx) or mcp_scope.get() or _fastmcp_scope()


def scope_of(ctx: Any) -> Scope | None:
    """The scope behind a handler's context object (the SDK's or FastMCP's), None over stdio."""
    try:
        request = getattr(getattr(ctx, "request_context", None) or ctx, "request", None)
    except (ValueError, RuntimeError):  # a context object outside of a request
        return None
    scope: Scope | None = getattr(request, "scope", None)
    return scope


def context_in(*arguments: Any) -> Any:
    """The context object of an HTTP request among a handler's arguments, None if there is none."""
    return next((value for value in arguments if _from_a_server(value) and scope_of(value) is not None), None)


def _from_a_server(value: Any) -> bool:
    return type(value).__module__.startswith(("mcp.", "fastmcp."))


def within_fastmcp() -> bool:
    """Whether FastMCP runs the current tool, and not the SDK's own server."""
    return _from_fastmcp("get_context") is not None


def _fastmcp_scope() -> Scope | None:
    scope: Scope | None = getattr(_from_fastmcp("get_http_request"), "scope", None)
    return scope


def _from_fastmcp(getter: str) -> Any:
    """What FastMCP's `getter` knows of the current call, None if nothing."""
    dependencies = sys.modules.get("fastmcp.server.dependencies")  # not loaded: not used
    if dependencies is None:
        return None
    try:
        return getattr(dependencies, getter)()
    except RuntimeError:  # FastMCP's way to say that there is none
        return None
