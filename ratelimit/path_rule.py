"""One rule by path: a limit on the requests below a prefix, checked when it is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ratelimit.categories import Category
from ratelimit.engine import Limiter
from ratelimit.errors import ConfigurationError
from ratelimit.guard import Attributes, Guard
from ratelimit.identity import Identity
from ratelimit.plan import RuleLike
from ratelimit.rates import Rate, is_rate
from ratelimit.rules import Policy, Rule
from ratelimit.spelling import plain_prefix

_HTTP: Final = "CONNECT DELETE GET HEAD OPTIONS PATCH POST PURGE PUT QUERY TRACE"
_WEBDAV: Final = (
    "ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT COPY LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF "
    "MKWORKSPACE MOVE ORDERPATCH PROPFIND PROPPATCH REBIND REPORT SEARCH UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE "
    "UPDATEREDIRECTREF VERSION-CONTROL"
)
_METHODS: Final = frozenset(f"{_HTTP} {_WEBDAV}".split())
"""The registered ones. Another name is taken for a misspelling, which would otherwise leave requests without a limit."""
_HOST: Final = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")


@dataclass(frozen=True, slots=True, eq=False)
class PathRule:
    """A limit on the requests below `prefix`.

    `rule` is a category, a `Rule`, a `Policy`, or the name of one, whose budget is shared with every place that names it; or
    a rate (`"100/m"`, a `Rate`) with a budget of this rule's own, under `name` (by default methods, host and prefix).
    `methods` (one name or several) and `hosts` (`example.com`, `*.example.com`) restrict it; hosts are what the client says,
    so let the server or the framework refuse those that are not yours. `key`, `cost` and `attributes` are as in `Guard`.

    Raises `ConfigurationError` for what cannot be used.
    """

    prefix: str
    rule: RuleLike
    name: str = ""
    methods: str | Iterable[str] = ()
    hosts: str | Iterable[str] = ()
    key: str | Callable[..., str | Identity] = "user_or_ip"
    cost: int | Callable[..., int] = 1
    attributes: Attributes | None = None

    def __post_init__(self) -> None:
        plain_prefix(self.prefix)
        if not isinstance(self.rule, (str, Category, Rate, Rule, Policy)):
            raise self._error(f"{self.rule!r} is neither a rule nor a rate")
        if not isinstance(self.name, str):
            raise self._error(f"name {self.name!r} is not a text")
        object.__setattr__(self, "methods", self._methods())
        object.__setattr__(self, "hosts", self._hosts())
        if not self.name:
            words = [",".join(sorted(self.methods)), ",".join(sorted(self.hosts)) + self.prefix]
            object.__setattr__(self, "name", " ".join(filter(None, words)))
        try:
            self.guard()
        except ConfigurationError as error:
            raise self._error(str(error)) from None

    @property
    def counts_apart(self) -> bool:
        """Whether the rule is a rate, with a budget of its own."""
        return is_rate(self.rule)

    def guard(
        self, facts: Callable[..., Mapping[str, Any]] | None = None, protocol: str = "", limiter: Limiter | None = None
    ) -> Guard:
        """The limit itself, for an adapter: see `Guard`."""
        own = self.counts_apart
        return Guard(
            None if own else self.rule,
            rate=self.rule if own else None,
            group=f"path:{self.name}" if own else None,
            key=self.key,
            cost=self.cost,
            attributes=self.attributes,
            facts=facts,
            protocol=protocol,
            limiter=limiter,
        )

    def _methods(self) -> frozenset[str]:
        names = self._texts("methods", self.methods)
        for name in names:
            if name.upper() not in _METHODS:
                raise self._error(
                    f"method {name!r} is not the name of one, as in 'POST'; leave methods out to mean all"
                )
        return frozenset(name.upper() for name in names)

    def _hosts(self) -> frozenset[str]:
        hosts = self._texts("hosts", self.hosts)
        for host in hosts:
            if not _HOST.fullmatch(host.lower()):
                raise self._error(f"host {host!r}: write 'example.com' or '*.example.com', without a port")
        return frozenset(host.lower() for host in hosts)

    def _texts(self, what: str, given: object) -> list[str]:
        several = not isinstance(given, str) and isinstance(given, Iterable)
        found: list[Any] = list(given) if several else [given]  # type: ignore[call-overload]
        for one in found:
            if not isinstance(one, str):
                raise self._error(f"{what}: {one!r} is not a text")
        return found

    def _error(self, text: str) -> ConfigurationError:
        return ConfigurationError(f"path rule {self.prefix!r}: {text}")
