"""The `key=` of a view's limit: what tells callers apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest
from django.utils.crypto import salted_hmac

from ratelimit import ConfigurationError, Identity
from ratelimit.identity import STRATEGIES
from ratelimit_django.references import Reference, is_path

ViewKey = str | Callable[..., Any] | None
"""A strategy's name, `header:NAME`, `get:NAME`, `post:NAME`, a dotted path or a callable `(group, request)`."""

USER_STRATEGIES: Final = frozenset({"user_or_ip", "user"})
_SOURCES: Final[dict[str, Callable[[HttpRequest, str], str | None]]] = {
    "header": lambda request, name: request.headers.get(name),
    "get": lambda request, name: request.GET.get(name),
    "post": lambda request, name: request.POST.get(name),
}
_VALUE_KEY: Final = re.compile(rf"(?P<source>{'|'.join(_SOURCES)}):(?P<name>\S+)")


@dataclass(frozen=True, slots=True)
class Caller:
    """How one limit finds its caller: `strategy` is for the engine, `value` (if any) a part of the request to count by."""

    strategy: str | Callable[..., Any]
    value: tuple[str, str] | None = None

    @property
    def needs_user(self) -> bool:
        """Whether the caller cannot be told without the user."""
        return self.value is None and self.strategy in USER_STRATEGIES

    def of(self, request: HttpRequest, identity: Identity) -> Identity:
        """`identity`, counted under the request's value if that is what this limit counts by.

        The value itself is never part of a key: what stands for it depends on `SECRET_KEY`, so nobody who reads the
        store can try likely values. A request without the value is counted by its address, apart from limits by
        address.
        """
        if self.value is None:
            return identity
        source, name = self.value
        found = _SOURCES[source](request, name)
        shown = (
            salted_hmac(f"ratelimit_django:{source}", found, algorithm="sha256").hexdigest()[:32]
            if found
            else identity.key("ip")
        )
        return identity.named(f"{source}:{name}:{shown}")


def parse_key(key: ViewKey) -> Caller:
    """The caller that `key` describes, `user_or_ip` when it is None. Raises `ConfigurationError` for anything else."""
    if key is None:
        return Caller("user_or_ip")
    if not isinstance(key, str):
        if callable(key):
            return Caller(key)
        raise _unknown(key)
    if key in STRATEGIES:
        return Caller(key)
    if found := _VALUE_KEY.fullmatch(key):
        source, name = found.group("source", "name")
        return Caller("user_or_ip", (source, name.lower() if source == "header" else name))
    if is_path(key):
        return Caller(Reference(key, "key"))
    raise _unknown(key)


def _unknown(key: object) -> ConfigurationError:
    forms = ", ".join([*STRATEGIES, *(f"{source}:NAME" for source in _SOURCES)])
    return ConfigurationError(f"unknown key {key!r}; use one of {forms}, a dotted path, or a callable (group, request)")
