"""Who is calling: the one resolver that every adapter uses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ratelimit import shapes
from ratelimit.addresses import UNKNOWN, Header, peer_address
from ratelimit.chain import client_address
from ratelimit.errors import ConfigurationError

if TYPE_CHECKING:
    from ratelimit.settings import Settings

STRATEGIES = ("user_or_ip", "user", "ip", "token_or_ip", "global")
"""What may be told apart: see `Identity.key`."""

_REMEMBERED: Final = 4096
_LONGEST: Final = 100
"""Characters of a user's id or an address that are worth remembering a caller by."""


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("an identity cannot be changed: use identity.having(...)")


_CHANGE: Final[Any] = _refuse


class _NoAttributes(dict[str, Any]):
    """The attributes of every caller without any: shared by all of them, so nobody can put one in."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _CHANGE
    clear = pop = popitem = setdefault = update = _CHANGE

    def __reduce__(self) -> str:
        return "_NO_ATTRIBUTES"


_NO_ATTRIBUTES: Final[Mapping[str, Any]] = _NoAttributes()


class _Keyed:
    """Room for the key of an identity that most limits ask for."""

    __slots__ = ("_key",)

    _key: str


@dataclass(frozen=True, slots=True, init=False)
class Identity(_Keyed):
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
    attributes: Mapping[str, Any] = field(default_factory=lambda: _NO_ATTRIBUTES, compare=False)

    def __init__(
        self,
        user: str | None = None,
        ip: str = UNKNOWN,
        token: str | None = None,
        superuser: bool = False,
        capped: bool = False,
        name: str | None = None,
        attributes: Mapping[str, Any] = _NO_ATTRIBUTES,
    ) -> None:
        # By hand, for one is made in every request: the generated form looks each field up by its name.
        _set_user(self, user)
        _set_ip(self, ip)
        _set_token(self, token)
        _set_superuser(self, superuser)
        _set_capped(self, capped)
        _set_name(self, name)
        _set_attributes(self, attributes)
        self._find_key()

    def key(self, strategy: str = "user_or_ip") -> str:
        """The caller's part of a store key: `user:42`, `ip:203.0.113.7`, `tok:<hash>` or `global`.

        `user_or_ip` and `user` take the user, else the address; `ip` always the address; `token_or_ip` the token,
        else the address; `global` makes one budget for everybody. Other names are a `ConfigurationError`.
        """
        if strategy == "user_or_ip" or strategy == "user":
            try:
                return self._key
            except AttributeError:  # unpickled, or of a subclass with an __init__ of its own
                return self._find_key()
        if self.name is not None:
            return self.name
        if strategy == "ip":
            return f"ip:{self.ip}"
        if strategy == "token_or_ip":
            return f"tok:{hashed(self.token)}" if self.token else f"ip:{self.ip}"
        if strategy == "global":
            return "global"
        raise unknown_strategy(strategy)

    def named(self, name: str) -> Identity:
        """The same caller, tier included, counted under `name`."""
        if type(self) is not Identity:  # which may have more fields than are known here
            return replace(self, name=name)
        return Identity(self.user, self.ip, self.token, self.superuser, self.capped, name, self.attributes)

    def having(self, /, **attributes: Any) -> Identity:
        """The same caller with further attributes."""
        if self.attributes:
            attributes = {**self.attributes, **attributes}
        if type(self) is not Identity:
            return replace(self, attributes=attributes)
        return Identity(self.user, self.ip, self.token, self.superuser, self.capped, self.name, attributes)

    def _find_key(self) -> str:
        if self.name is not None:
            found = self.name
        else:
            found = f"user:{self.user}" if self.user is not None else f"ip:{self.ip}"
        _set_key(self, found)
        return found


# What sets the fields, nothing else can: the class is frozen.
_set_user, _set_ip, _set_token, _set_superuser, _set_capped, _set_name, _set_attributes = (
    Identity.__dict__[name].__set__ for name in ("user", "ip", "token", "superuser", "capped", "name", "attributes")
)
_set_key = _Keyed.__dict__["_key"].__set__


def hashed(secret: str) -> str:
    """32 hexadecimal digits that stand for `secret` in keys and logs (SHA-256, cut)."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def unknown_strategy(strategy: object) -> ConfigurationError:
    """The error for a key strategy that does not exist."""
    return ConfigurationError(f"unknown key strategy {strategy!r}; use one of {', '.join(STRATEGIES)}, or a callable")


def resolve(
    headers: Iterable[Header],
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
    for what a caller sent; reads one forwarding header, `settings.client_header`, and only as far as the proxies that
    `settings.proxies_count` or `settings.trusted_proxies` name have written it.
    """
    mask = settings.ipv6_mask
    if settings.proxied:
        address = client_address(headers, peer, settings)
    else:
        address = peer or UNKNOWN  # read below, if it has to be
        if shapes.looking:
            shapes.look(headers, peer)
    if user is None:
        user_id, superuser, capped = None, False, False
    else:
        user_id, capped = _user_id(user), _flag(user, "is_usage_capped")
        superuser = user_id is not None and _flag(user, "is_superuser")
    # A token is a secret: it is not kept longer than its request.
    if token is None and len(address) <= _LONGEST and (user_id is None or len(user_id) <= _LONGEST):
        return _remembered(user_id, address, mask, superuser, capped)
    return Identity(user_id, peer_address(address, mask), token, superuser, capped)


def resolve_address(peer: str | None, settings: Settings) -> Identity | None:
    """`resolve` where a connection is all that is known, and no proxy is configured; None when it has more to look at."""
    if settings.proxied or shapes.looking or not peer or len(peer) > _LONGEST:
        return None
    return _anonymous(peer, settings.ipv6_mask)


@lru_cache(maxsize=_REMEMBERED)
def _anonymous(address: str, ipv6_mask: int) -> Identity:
    return Identity(None, peer_address(address, ipv6_mask))


@lru_cache(maxsize=_REMEMBERED)
def _remembered(user: str | None, address: str, ipv6_mask: int, superuser: bool, capped: bool) -> Identity:
    """Who was seen lately: an identity never changes, so neither it nor its texts need to be made again."""
    return Identity(user, peer_address(address, ipv6_mask), None, superuser, capped)


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
