"""Rules by path: which limit a request meets, whatever the order in which they were declared.

Rules:
- A rule's prefix matches whole segments of the path that the router sees: `/api` means `/api` and `/api/x`, not `/apis`.
- The longest matching prefix decides; of equally long ones that with a host, then that with methods.
- Every spelling that a router may take for a path meets the path's rule: slashes too many, one at the end, a line end.
  An exemption holds for the plain spelling alone.
- Methods are compared in capitals, and GET means HEAD too: frameworks answer it by the same code.
"""

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
from ratelimit.rates import Rate
from ratelimit.rules import Policy, Rule

_METHOD: Final = re.compile(r"[A-Z]+(?:-[A-Z]+)*")
_HOST: Final = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")
Segments = tuple[str, ...]


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
        _segments_of(self.prefix)
        if not isinstance(self.rule, (str, Category, Rate, Rule, Policy)):
            raise ConfigurationError(f"path rule {self.prefix!r}: {self.rule!r} is neither a rule nor a rate")
        object.__setattr__(self, "methods", _methods(self.prefix, self.methods))
        object.__setattr__(self, "hosts", _hosts(self.prefix, self.hosts))
        if not self.name:
            words = [",".join(sorted(self.methods)), ",".join(sorted(self.hosts)) + self.prefix]
            object.__setattr__(self, "name", " ".join(filter(None, words)))
        self.guard()

    def guard(
        self, facts: Callable[..., Mapping[str, Any]] | None = None, protocol: str = "", limiter: Limiter | None = None
    ) -> Guard:
        """The limit itself, for an adapter: see `Guard`."""
        own = isinstance(self.rule, Rate) or (isinstance(self.rule, str) and "/" in self.rule)
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


class PathRules:
    """Which of some rules means a request. `exempt` are prefixes below which none does, but for longer ones' rules."""

    __slots__ = ("_by_segments", "_longest", "rules")

    def __init__(self, rules: Iterable[PathRule], exempt: Iterable[str] = ()) -> None:
        self.rules = tuple(rules)
        self._by_segments: dict[Segments, list[PathRule | None]] = {}
        for one in self.rules:
            if not isinstance(one, PathRule):
                raise ConfigurationError(f"path rule {one!r}: expected PathRule('/prefix', rule)")
            self._by_segments.setdefault(_segments_of(one.prefix), []).append(one)
        for segments, found in self._by_segments.items():
            found.sort(key=_rank, reverse=True)
            _refuse_doubles("/" + "/".join(segments), [one for one in found if one is not None])
        for prefix in [exempt] if isinstance(exempt, str) else exempt:
            self._by_segments.setdefault(_segments_of(prefix), []).append(None)
        self._longest = max(map(len, self._by_segments), default=0)

    def find(self, path: str, method: str, host: str = "") -> PathRule | None:
        """The rule for a request, None if nothing limits it. `method` is empty for a WebSocket handshake, which only rules
        without methods mean."""
        segments, plain = _spelled(path)
        method, host = method.upper(), bare_host(host)
        for length in range(min(len(segments), self._longest), -1, -1):
            for one in self._by_segments.get(segments[:length], ()):
                if one is None:
                    if plain:
                        return None
                elif _means(one, method, host):
                    return one
        return None


def is_preflight(method: str, header: Callable[[str], str | None]) -> bool:
    """Whether a request is a CORS preflight (WHATWG Fetch, 4.8), which a browser sends by itself."""
    return (
        method.upper() == "OPTIONS"
        and header("Origin") is not None
        and header("Access-Control-Request-Method") is not None
    )


def bare_host(host: str) -> str:
    """A host in lower case, without port and final dot."""
    host = host.strip().lower()
    if not host.startswith("["):
        return host.partition(":")[0].rstrip(".")
    return host.partition("]")[0] + "]"


def _spelled(path: str) -> tuple[Segments, bool]:
    """The segments of a path, and whether this is its plain spelling."""
    # A pattern that ends in "$" takes a line end as well, as many routers' do.
    parts = path.rstrip("\r\n").split("/")
    segments = tuple([part for part in parts if part])
    return segments, len(parts) - len(segments) <= 1 + (len(parts) > 1 and not parts[-1]) and not path.endswith("\n")


def _segments_of(prefix: object) -> Segments:
    if not isinstance(prefix, str) or not prefix.startswith("/"):
        raise ConfigurationError(f"path {prefix!r}: write it from the root of the application, as in '/api/login'")
    segments, plain = _spelled(prefix)
    if not plain or set(prefix) & set("?#*{}<>"):
        raise ConfigurationError(f"path {prefix!r}: a prefix is plain segments, without patterns and doubled slashes")
    return segments


def _methods(prefix: str, given: str | Iterable[str]) -> frozenset[str]:
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        if not isinstance(name, str) or not _METHOD.fullmatch(name.upper()):
            raise ConfigurationError(f"path rule {prefix!r}: method {name!r} is not the name of one, as in 'POST'")
    return frozenset(name.upper() for name in names)


def _hosts(prefix: str, given: str | Iterable[str]) -> frozenset[str]:
    hosts = [given] if isinstance(given, str) else list(given)
    for host in hosts:
        if not isinstance(host, str) or not _HOST.fullmatch(host.lower()):
            raise ConfigurationError(f"path rule {prefix!r}: host {host!r}: write 'example.com' or '*.example.com'")
    return frozenset(host.lower() for host in hosts)


def _rank(rule: PathRule | None) -> tuple[bool, bool]:
    assert rule is not None
    return bool(rule.hosts), bool(rule.methods)


def _refuse_doubles(prefix: str, rules: list[PathRule]) -> None:
    """Raises `ConfigurationError` if two rules may mean one request and neither comes before the other."""
    for number, one in enumerate(rules):
        for other in rules[number + 1 :]:
            if _rank(one) == _rank(other) and _meet(one.methods, other.methods) and _meet(one.hosts, other.hosts):
                raise ConfigurationError(
                    f"path rules {one.name!r} and {other.name!r} mean the same requests below {prefix!r}; leave one out, "
                    "or tell them apart by methods= or hosts="
                )


def _meet(one: Any, other: Any) -> bool:
    return not one or not other or not one.isdisjoint(other)


def _means(rule: PathRule, method: str, host: str) -> bool:
    methods: Any = rule.methods
    hosts: Any = rule.hosts
    if methods and method not in methods and not (method == "HEAD" and "GET" in methods):
        return False
    return not hosts or host in hosts or any(one[0] == "*" and host.endswith(one[1:]) for one in hosts)
