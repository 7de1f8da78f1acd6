"""Who is calling: the one resolver that every adapter uses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ratelimit.addresses import UNKNOWN, client_address
from ratelimit.errors import ConfigurationError

if TYPE_CHECKING:
    from ratelimit.settings import Settings

STRATEGIES = ("user_or_ip", "user", "ip", "token_or_ip", "global")
"""What may be told apart: see `Identity.key`."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller, as the application and the connection know it; nothing in it was chosen by the caller itself.

    `user` is the authenticated user's id, None for an anonymous caller. `ip` is canonical and masked, `"unknown"` if
    the connection has none. `token` is an API key or bearer token that the application has accepted; it is hashed
    before it becomes part of a key. `name`, when set, is the caller's key as it stands, whatever the strategy.
    `attributes` are further facts of the caller or the call, for rules: `device`, `account`, `path`.
    """

    user: str | None = None
    ip: str = UNKNOWN
    token: str | None = field(default=None, repr=False)
    superuser: bool = False
    capped: bool = False
    name: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def key(self, strategy: str = "user_or_ip") -> str:
        """The caller's part of a store key: `user:42`, `ip:203.0.113.7`, `tok:<hash>` or `global`.

        `user_or_ip` and `user` take the user, else the address; `ip` always the address; `token_or_ip` the token,
        else the address; `global` makes one budget for everybody. Other names are a `ConfigurationError`.
        """
        if self.name is not None:
            return self.name
        if strategy == "user_or_ip" or strategy == "user":
            return f"user:{self.user}" if self.user is not None else f"ip:{self.ip}"
        if strategy == "ip":
            return f"ip:{self.ip}"
        if strategy == "token_or_ip":
            return f"tok:{hashed(self.token)}" if self.token else f"ip:{self.ip}"
        if strategy == "global":
            return "global"
        raise unknown_strategy(strategy)

    def named(self, name: str) -> Identity:
        """The same caller, tier included, counted under `name`."""
        return replace(self, name=name)

    def having(self, /, **attributes: Any) -> Identity:
        """The same caller with further attributes."""
        return replace(self, attributes={**self.attributes, **attributes})


def hashed(secret: str) -> str:
    """32 hexadecimal digits that stand for `secret` in keys and logs (SHA-256, cut)."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def unknown_strategy(strategy: object) -> ConfigurationError:
    """The error for a key strategy that does not exist."""
    return ConfigurationError(f"unknown key strategy {strategy!r}; use one of {', '.join(STRATEGIES)}, or a callable")


def resolve(
    headers: Iterable[tuple[str | bytes, str | bytes]],
    peer: str | None,
    user: Any = None,
    token: str | None = None,
    *,
    settings: Settings,
) -> Identity:
    """The caller behind a request, from what the server and the application know.

    `headers` are (name, value) pairs, one for each header line, in order. `peer` is the address the server saw, None
    or empty if there was none. `user` is a user object (`is_authenticated`, `pk` or `id`, and optionally
    `is_superuser` and `is_usage_capped`), an id, or None. `token` is one the application has accepted. Never raises
    for what a caller sent; reads forwarding headers only as far as `settings.proxies_count` trusts them.
    """
    ip = client_address(headers, peer, proxies_count=settings.proxies_count, ipv6_mask=settings.ipv6_mask)
    user_id = _user_id(user)
    if user_id is None:
        return Identity(ip=ip, token=token, capped=_flag(user, "is_usage_capped"))
    return Identity(user_id, ip, token, _flag(user, "is_superuser"), _flag(user, "is_usage_capped"))


def _user_id(user: Any) -> str | None:
    """The id of an authenticated user, as text."""
    if isinstance(user, (str, int)):
        # A bool answers another question ("is there a user?"): it is nobody's id.
        return None if user == "" or isinstance(user, bool) else str(user)
    authenticated = getattr(user, "is_authenticated", False)
    if callable(authenticated):
        authenticated = authenticated()
    if not authenticated:
        return None
    user_id = getattr(user, "pk", None)
    if user_id is None:
        user_id = getattr(user, "id", None)
    # A user without an id (not saved yet) cannot be told from another one: count it by address.
    return None if user_id is None else str(user_id)


def _flag(user: Any, name: str) -> bool:
    # Only True itself: a stand-in whose attributes are all truthy must not become a superuser.
    return getattr(user, name, False) is True
