"""Rules by path: which limit a request meets, whatever the order in which they were declared.

Rules:
- A rule's prefix matches whole segments of the path that the router sees: `/api` means `/api` and `/api/x`, not `/apis`.
- The longest matching prefix decides; of equally long ones that with the more exact host, then that with methods.
- Every spelling that a router may take for a path meets the path's rule: slashes too many, one at the end, a line end.
  An exemption holds for the plain spelling alone.
- A path that may be read in two ways (what serves files resolves `..`, a router does not) meets the rule of the other reading
  if that lies below the rule of the first.
- Methods are compared in capitals, and GET means HEAD too: frameworks answer it by the same code.
- What two rules mean at once is an error when they are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ratelimit.errors import ConfigurationError
from ratelimit.path_rule import PathRule
from ratelimit.spelling import Segments, folded, has_dots, plain_prefix, spelled, without_dots, without_format

__all__ = ["PathRule", "PathRules", "bare_host", "is_preflight"]


class _Place:
    """What holds at one prefix."""

    __slots__ = ("exempt", "rules")

    def __init__(self) -> None:
        self.rules: list[PathRule] = []
        self.exempt: Segments | None = None

    def find(self, method: str, host: str) -> PathRule | None:
        """Its rule for a request, the more exact one of several."""
        found: PathRule | None = None
        best = (-1, False)
        for rule in self.rules:
            fit = _fit(rule, method, host)
            if fit is not None and fit > best:
                found, best = rule, fit
        return found


class PathRules:
    """Which of some rules means a request. `exempt` are prefixes below which none does, but for longer ones' rules.

    Say `ignore_case=True` if the router takes `/Login` for `/login`, and `formats=True` if it takes `/login.json` for it: a
    spelling that is served and not known here would meet another rule. Neither makes an exemption hold for more.

    Raises `ConfigurationError` for rules that mean the same requests or share a name, and for an exemption that never holds.
    """

    __slots__ = ("_formats", "_ignore_case", "_longest", "_places", "has_hosts", "rules")

    def __init__(
        self,
        rules: Iterable[PathRule],
        exempt: Iterable[str] = (),
        *,
        ignore_case: bool = False,
        formats: bool = False,
    ) -> None:
        self._ignore_case = ignore_case
        self._formats = formats
        self._places: dict[Segments, _Place] = {}
        self.rules = tuple(rules)
        for one in self.rules:
            if not isinstance(one, PathRule):
                raise ConfigurationError(f"path rule {one!r}: expected PathRule('/prefix', rule)")
            self._place(one.prefix).rules.append(one)
        for prefix in _exemptions(exempt):
            self._place(prefix).exempt = plain_prefix(prefix)
        for place in self._places.values():
            _refuse_doubles(place)
        _refuse_namesakes(self.rules)
        self._longest = max(map(len, self._places), default=0)
        self.has_hosts = any(one.hosts for one in self.rules)

    def find(self, path: str, method: str, host: str = "", reading: str | None = None) -> PathRule | None:
        """The rule for a request, None if nothing limits it. `path` is what the router is given: decoded, without what the
        application is mounted under; `reading` is what some routers would take it for instead, None if all agree. `method` is
        empty for a WebSocket handshake, which only rules without methods mean."""
        if not self._places:
            return None
        segments, plain = spelled(path)
        method, host = method.upper(), bare_host(host)
        if reading is None and not has_dots(segments):
            return self._at(segments, method, host, plain)
        readings = [segments] if reading is None else [segments, spelled(reading)[0]]
        return self._deepest([*readings, *map(without_dots, readings)], method, host)

    def _deepest(self, readings: Iterable[Segments], method: str, host: str) -> PathRule | None:
        """The rule for a path that may be read in several ways, none of which is exempt."""
        found: PathRule | None = None
        for segments in readings:
            rule = self._at(segments, method, host, False)
            if rule is not None and (found is None or self._is_below(rule, found)):
                found = rule
        return found

    def _at(self, segments: Segments, method: str, host: str, plain: bool) -> PathRule | None:
        for prefix in self._prefixes(segments):
            place = self._places.get(prefix)
            if place is None:
                continue
            found = place.find(method, host)
            if found is not None:
                return found
            # An exemption is for what is written as it is, its case included.
            if place.exempt is not None and plain and segments[: len(place.exempt)] == place.exempt:
                return None
        return None

    def _is_below(self, rule: PathRule, other: PathRule) -> bool:
        lower, upper = map(self._known_as, (rule.prefix, other.prefix))
        return lower[: len(upper)] == upper

    def _known_as(self, prefix: str) -> Segments:
        segments = plain_prefix(prefix)
        return folded(segments) if self._ignore_case else segments

    def _place(self, prefix: str) -> _Place:
        return self._places.setdefault(self._known_as(prefix), _Place())

    def _prefixes(self, segments: Segments) -> Iterable[Segments]:
        """The prefixes of a path, the longest first."""
        known = folded(segments) if self._ignore_case else segments
        for length in range(min(len(known), self._longest), -1, -1):
            yield known[:length]
            if self._formats and length and length == len(known):
                yield without_format(known)


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


def _fit(rule: PathRule, method: str, host: str) -> tuple[int, bool] | None:
    """How exactly a rule means a request, None if it does not."""
    methods: Any = rule.methods
    hosts: Any = rule.hosts
    if methods and method not in methods and not (method == "HEAD" and "GET" in methods):
        return None
    if not hosts:
        return 0, bool(methods)
    if host in hosts:
        return len(host) + 1, bool(methods)
    return max(
        ((len(one), bool(methods)) for one in hosts if one[0] == "*" and host.endswith(one[1:])),
        default=None,
    )


def _exemptions(given: Iterable[str]) -> list[str]:
    if isinstance(given, str):
        return [given]
    if isinstance(given, Iterable):
        return list(given)
    raise ConfigurationError(f"exempt paths {given!r}: expected several, as in ['/static', '/health']")


def _refuse_doubles(place: _Place) -> None:
    """Raises `ConfigurationError` if two rules of a prefix may mean one request and neither comes before the other."""
    for number, one in enumerate(place.rules):
        for other in place.rules[number + 1 :]:
            if _mean_the_same(one, other):
                raise ConfigurationError(
                    f"path rules {one.name!r} and {other.name!r} mean the same requests below {one.prefix!r}; leave one "
                    "out, or tell them apart by methods= (GET means HEAD too) or hosts="
                )
        if place.exempt is not None and not one.methods and not one.hosts:
            raise ConfigurationError(f"path {one.prefix!r} has a rule and is exempt; leave one out")


def _mean_the_same(one: PathRule, other: PathRule) -> bool:
    # One with methods comes before one without, and so does the more exact of two different hosts.
    if bool(one.methods) != bool(other.methods) or bool(one.hosts) != bool(other.hosts):
        return False
    return _meet(_answered(one.methods), _answered(other.methods)) and _meet(one.hosts, other.hosts)


def _answered(methods: Any) -> frozenset[str]:
    found = frozenset(methods)
    return found | {"HEAD"} if "GET" in found else found


def _meet(one: Any, other: Any) -> bool:
    return not one or not one.isdisjoint(other)


def _refuse_namesakes(rules: Iterable[PathRule]) -> None:
    """Raises `ConfigurationError` for two rates of one name, which would spend one budget."""
    named: dict[str, PathRule] = {}
    for one in rules:
        if one.counts_apart and named.setdefault(one.name, one) is not one:
            raise ConfigurationError(
                f"path rules {named[one.name].prefix!r} and {one.prefix!r} are both called {one.name!r}; give each a name= of "
                "its own, or, to share one budget, give both the same Rule or category"
            )
