"""The settings that say which proxies are trusted, and which header they tell the client in: read, and checked together."""

from __future__ import annotations

import re
from typing import Final

from ratelimit.chain import CHAIN_HEADERS, X_FORWARDED_FOR
from ratelimit.errors import ConfigurationError
from ratelimit.networks import Networks

_COUNT: Final = "RATELIMIT_PROXIES_COUNT"
_NETWORKS: Final = "RATELIMIT_TRUSTED_PROXIES"
_HEADER: Final = "RATELIMIT_CLIENT_HEADER"
_NAME: Final = re.compile(r"[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*")
_SECRETS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})


def networks(value: object) -> Networks:
    """The trusted networks, none for None."""
    try:
        return Networks(() if value is None else value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{_NETWORKS}: {error}") from None


def header_name(value: object) -> str:
    """The client header's name: that of a chain in its usual spelling, another one as it was given.

    No name with an underscore: under WSGI it could not be told from the one with a hyphen.
    """
    text = value.strip() if isinstance(value, str) else ""
    if len(text) > 64 or not _NAME.fullmatch(text):
        known = ", ".join(CHAIN_HEADERS)
        raise ConfigurationError(
            f"{_HEADER}={value!r}: expected the name of one header: {known}, or one such as X-Real-IP"
        )
    if text.lower() in _SECRETS:
        raise ConfigurationError(
            f"{_HEADER}={value!r}: expected a header that holds an address, not one that holds a secret"
        )
    return next((known for known in CHAIN_HEADERS if known.lower() == text.lower()), text)


def is_proxied(count: int, trusted: Networks, header: str) -> bool:
    """Whether any proxy is trusted. Raises `ConfigurationError` for settings that contradict each other."""
    if count and trusted:
        raise ConfigurationError(
            f"{_COUNT}={count} and {_NETWORKS}={trusted} both say which proxies are trusted: choose one, and leave the other out"
        )
    if header != X_FORWARDED_FOR and not count and not trusted:
        raise ConfigurationError(
            f"{_HEADER}={header!r} without a trusted proxy would never be read: say which proxy sets it, by {_COUNT}=1 or by "
            f"its networks in {_NETWORKS}"
        )
    return bool(count or trusted)
