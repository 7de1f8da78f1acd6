"""Who calls a tool: an OAuth subject or client, the application's own user, or an address."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from inspect import iscoroutinefunction
from typing import Any, TypeAlias

from ratelimit import ConfigurationError, Identity, get_limiter
from ratelimit.asgi import Scope, scope_identity
from ratelimit.settings import Settings
from ratelimit_mcp.context import current_scope

Caller: TypeAlias = Callable[[Scope], Any]
"""Tells an `Identity`, a user (object or id), or None for the rules of `identify`."""

STDIO = Identity(name="stdio")
"""The caller of a server that answers no HTTP request: the process that started it."""

current_caller: ContextVar[Caller | None] = ContextVar("current_caller", default=None)
"""The `caller=` of the `MCPRateLimit` around the current call, so that its tools see the caller it sees."""


def valid_caller(caller: Caller | None) -> Caller | None:
    """`caller` if it can be asked, else a `ConfigurationError`."""
    if caller is not None and (not callable(caller) or iscoroutinefunction(caller)):
        raise ConfigurationError(f"caller {caller!r} is not a plain function of the scope")
    return caller


def identify(scope: Scope, settings: Settings, caller: Caller | None = None) -> Identity:
    """The caller behind an HTTP request: what `caller` says, else its accepted token, its user, its address.

    A token counts once the application's auth middleware has accepted it (`scope["user"].access_token`); an unchecked
    one, the session id and the client's name are the caller's own choice and never read.
    """
    found = caller(scope) if caller is not None else None
    if isinstance(found, Identity):
        return found
    identity = scope_identity(scope, settings, found)
    return identity if found is not None else _with_token(identity, _scope_token(scope))


def mcp_identity(ctx: Any = None, *, user: Any = None, settings: Settings | None = None) -> Identity:
    """The caller as a tool's code sees it: `user` if given, else the request's caller, else `STDIO`.

    `ctx` is the handler's context object, needed only where no `MCPRateLimit` is around the SDK's application.
    `settings` are the process's own by default.
    """
    settings = get_limiter().settings if settings is None else settings
    scope = current_scope(ctx)
    if user is not None:
        return identify(scope or {}, settings, lambda _: user)
    token = _accepted_token()
    if scope is None:
        return STDIO if token is None else _with_token(Identity(), token)
    identity = identify(scope, settings, current_caller.get())
    known = identity.user is not None or identity.name is not None
    return identity if known else _with_token(identity, token)


def oauth_subject(scope: Scope) -> str | None:
    """The subject of the request's token, for `caller=` where subjects are the application's own user ids.

    It makes `user:42` of the subject `42`, the same caller that GraphQL, WebSocket and HTTP count.
    """
    return _text(_scope_token(scope), "subject")


def _with_token(identity: Identity, token: Any) -> Identity:
    """`identity` as the subject of `token`, else as its client; unchanged without a token.

    Both are unique only within their issuer, so an issuer that the token's verifier tells is part of the name.
    """
    subject, client = _text(token, "subject"), _text(token, "client_id")
    if subject is None and client is None:
        return identity
    issuer = (getattr(token, "claims", None) or {}).get("iss")
    name = f"sub:{subject}" if subject is not None else f"client:{client}"
    # The bar ends the issuer: one within it would let two pairs of issuer and subject look alike.
    user = name if issuer is None else f"iss:{str(issuer).replace('%', '%25').replace('|', '%7C')}|{name}"
    return replace(identity, user=user, token=_text(token, "token"))


def _scope_token(scope: Scope) -> Any:
    return getattr(scope.get("user"), "access_token", None)


def _accepted_token() -> Any:
    """The token that the SDK's auth middleware keeps for the current request, None without one."""
    auth = sys.modules.get("mcp.server.auth.middleware.auth_context")  # not loaded: not used
    return auth.get_access_token() if auth is not None else None


def _text(token: Any, name: str) -> str | None:
    value = getattr(token, name, None)
    return value if isinstance(value, str) and value else None
