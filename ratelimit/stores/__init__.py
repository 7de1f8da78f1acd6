"""Stores: where the counts live. `open_store` finds the one that a URL names."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module

from ratelimit.errors import ConfigurationError
from ratelimit.stores.base import Store

_REDIS = "ratelimit.stores.redis:RedisStore"
SCHEMES = {
    "memory": "ratelimit.stores.memory:open_memory",
    "redis": _REDIS,
    "rediss": _REDIS,
    "unix": _REDIS,
    "redis+cluster": _REDIS,
    "rediss+cluster": _REDIS,
    "redis+sentinel": _REDIS,
    "rediss+sentinel": _REDIS,
    "django": "ratelimit_django.store:open_cache",
}
"""Which callable opens a URL, as `module:name`: imported when asked for, so that no store costs those who do not use it."""


def open_store(url: str) -> Store:
    """The store that `url` names. Raises `ConfigurationError` for an unknown scheme or a package that is not installed.

    No connection is made: an unreachable server is the outage policy's matter, at the first check.
    """
    scheme = known_scheme(url) if isinstance(url, str) else ""
    if not scheme:
        raise ConfigurationError(
            f"store {redacted(url)!r}: unknown scheme; use one of {', '.join(s + '://' for s in SCHEMES)}"
        )
    module, _, name = SCHEMES[scheme].partition(":")
    try:
        factory: Callable[[str], Store] = getattr(import_module(module), name)
    except ImportError as error:
        extra = "django" if scheme == "django" else "redis"
        raise ConfigurationError(
            f"store {redacted(url)!r} needs a package that is not installed ({error}): pip install 'ratelimit-engine[{extra}]'"
        ) from error
    return factory(url)


def known_scheme(url: str) -> str:
    """The scheme of `url` if there is a store for it, else an empty text."""
    scheme, separator, _ = url.partition("://")
    return scheme if separator and scheme in SCHEMES else ""


def redacted(url: object) -> str:
    """`url` without its user name and passwords, for messages."""
    text = re.sub(r"(password=)[^&]*", r"\1***", str(url))
    return re.sub(r"^([a-z+]*:(?://)?)?.*@", r"\1***@", text, flags=re.DOTALL)
