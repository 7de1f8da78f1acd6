"""One limit on requests: whom it counts, when, and what it notes on the request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from itertools import count
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest

from ratelimit import Category, ConfigurationError, Decision, Identity, Limiter, Policy, Rate, Rule
from ratelimit.guard import RULES, Attributes, Guard
from ratelimit.paths import PathRule
from ratelimit.plan import RuleLike
from ratelimit.settings import Settings
from ratelimit.spent import SPENT, note_spent, spent
from ratelimit_django.callers import USER_STRATEGIES, Caller, ViewKey, parse_key
from ratelimit_django.identity import arequest_identity, request_identity
from ratelimit_django.methods import ALL, counted_methods
from ratelimit_django.noted import note
from ratelimit_django.references import Reference, is_path

ViewRate = RuleLike | tuple[int, int] | Callable[..., Any] | None
"""Rate text, a `Rate`, (limit, seconds), a category or its name, a dotted path or a callable `(group, request)`."""

_OF_THE_USER: Final = frozenset({"user", "user_or_ip", "authenticated", "superuser"})
"""What rules may match or count by that nobody knows before the user is read."""

UNSET: Final = ""
"""Stands for a `rate=` that was not given: None means that there is no limit."""

PROTOCOL: Final = "http"
_numbers = count(1)


class Limit:
    """A guard that is asked about requests. `value` is the part of a request that it counts by, if any; `methods` are those
    that it counts, None for all."""

    def __init__(
        self,
        guard: Guard,
        *,
        value: Caller | None = None,
        methods: frozenset[str] | None = None,
        needs_user: bool = True,
    ) -> None:
        self.number = next(_numbers)
        self._guard = guard
        self._value = value
        self._methods = methods
        self._needs_user = needs_user

    @property
    def settings(self) -> Settings:
        """The settings that hold for it now."""
        return self._guard.limiter.settings

    def check(self, request: HttpRequest, group: str) -> Decision | None:
        """The decision on `request`, noted on it; None where this limit does not count it."""
        settings = self._guard.limiter.settings
        if not self._counts(request, settings):
            return note(request, None)
        identity = request_identity(request, settings=settings, user=self._needs_user)
        identity, group = self._asked(request, group, identity)
        holder = _standing_for(request)
        decision = spent(holder, self._guard, identity, (group, request)) if SPENT in holder else None
        if decision is None:
            decision = self._guard.check(identity, group, group, request)
            note_spent(holder, self._guard, identity, decision, (group, request))
        return note(request, decision, self._guard.known_key(identity))

    async def acheck(self, request: HttpRequest, group: str) -> Decision | None:
        """`check` for an event loop."""
        settings = self._guard.limiter.settings
        if not self._counts(request, settings):
            return note(request, None)
        identity = await arequest_identity(request, settings=settings, user=self._needs_user)
        identity, group = self._asked(request, group, identity)
        holder = _standing_for(request)
        decision = spent(holder, self._guard, identity, (group, request)) if SPENT in holder else None
        if decision is None:
            decision = await self._guard.acheck(identity, group, group, request)
            note_spent(holder, self._guard, identity, decision, (group, request))
        return note(request, decision, self._guard.known_key(identity))

    def look(self, request: HttpRequest, group: str) -> Decision | None:
        """What `check` would decide, noted on the request; nothing is taken."""
        settings = self._guard.limiter.settings
        if not self._counts(request, settings):
            return note(request, None)
        identity = request_identity(request, settings=settings, user=self._needs_user)
        identity, group = self._asked(request, group, identity)
        call = self._guard.call(identity, group, group, request)
        if call is None:
            return note(request, None)
        found = self._guard.limiter.peek(
            call.rule, call.identity, key=call.key, cost=call.cost, group=call.group, protocol=self._guard.protocol
        )
        return note(request, found)

    def _counts(self, request: HttpRequest, settings: Settings) -> bool:
        return not settings.disable and (self._methods is None or request.method in self._methods)

    def _asked(self, request: HttpRequest, group: str, identity: Identity) -> tuple[Identity, str]:
        """The caller, and where a rate counts, which callables are told, too."""
        return identity if self._value is None else self._value.of(request, identity), self._guard.group or group


def view_limit(
    rule: RuleLike | None,
    *,
    key: ViewKey = None,
    rate: ViewRate = UNSET,
    group: str | None = None,
    method: str | Iterable[str] = ALL,
    cost: int | Callable[..., int] = 1,
    attributes: Attributes | None = None,
    limiter: Limiter | None = None,
) -> Limit:
    """What `view_ratelimit` was told. Raises `ConfigurationError` for what cannot be used."""
    _refuse_async(key=key, rate=rate, cost=cost, attributes=attributes)
    if rule is not None and not isinstance(rule, (str, Category, Rate, Rule, Policy)):
        raise ConfigurationError(f"{rule!r} is not a category; write @view_ratelimit(rate='10/m') above the view")
    caller = parse_key(key)
    guard = Guard(
        rule,
        rate=_guard_rate(rate, caller),
        key=caller.strategy,
        group=group,
        cost=cost,
        attributes=attributes,
        facts=_facts,
        protocol=PROTOCOL,
        limiter=limiter,
    )
    value = None if caller.value is None else caller
    _refuse_value(caller, guard.rule or guard.rate)
    return Limit(guard, value=value, methods=counted_methods(method), needs_user=_of_users(guard, caller.needs_user))


def path_limit(rule: PathRule) -> Limit:
    """The limit of a path rule."""
    guard = rule.guard(_facts, PROTOCOL)
    return Limit(guard, needs_user=_of_users(guard, isinstance(guard.key, str) and guard.key in USER_STRATEGIES))


def _of_users(guard: Guard, key_needs_user: bool) -> bool:
    """Whether the user has to be read before the guard is asked."""
    limit = guard.rule or guard.rate
    if isinstance(limit, (Rule, Policy)):
        return any(map(_needs_user, Policy(limit)))
    return key_needs_user or not isinstance(limit, Rate)


def _standing_for(request: Any) -> MutableMapping[str, Any]:
    """What stands for the request in every layer: the ASGI scope, else the WSGI environ."""
    scope = getattr(request, "scope", None)
    found: MutableMapping[str, Any] = scope if isinstance(scope, MutableMapping) else request.META
    return found


def _facts(group: str, request: HttpRequest) -> Mapping[str, Any]:
    """What rules may know of a request: its path as the router sees it, its method. A pattern that ends in "$" takes a path
    with a line end for the one without: so do rules."""
    return {"path": request.path_info.rstrip("\r\n"), "method": request.method}


def _needs_user(rule: Rule) -> bool:
    """Whether the caller cannot be told without the user, or a function may ask for it."""
    by: Iterable[Any] = rule.by  # type: ignore[assignment]
    if rule.tiered or any(map(callable, (rule.rate, *by))):
        return True
    return not _OF_THE_USER.isdisjoint({*rule.match, rule.count_distinct, *by})


def _guard_rate(rate: ViewRate, caller: Caller) -> Any:
    if rate is None:
        return _no_limit
    if rate == UNSET:
        return None
    if is_path(rate):
        rate = Reference(str(rate), "rate")
    return _asked_rate(rate, caller) if callable(rate) else _readable(rate)


def _asked_rate(rate: Callable[..., Any], caller: Caller) -> Callable[..., Any]:
    def asked(group: str, request: HttpRequest) -> Any:
        found = _readable(rate(group, request))
        if isinstance(found, (Rule, Policy)):
            _refuse_value(caller, found)
        return found

    return asked


def _refuse_value(caller: Caller, rule: object) -> None:
    if caller.value is not None and isinstance(rule, RULES):
        key = ":".join(caller.value)
        raise ConfigurationError(f"key={key!r} has no effect on a rule, which says by=; leave it out")


def _readable(rate: Any) -> Any:
    """A rate for the guard; (limit, seconds), which django-ratelimit takes too, becomes a `Rate`."""
    return Rate(*rate) if isinstance(rate, tuple) and len(rate) == 2 else rate


def _no_limit(group: str, request: HttpRequest) -> None:
    return None


def _refuse_async(**given: object) -> None:
    for name, value in given.items():
        if iscoroutinefunction(value):
            raise ConfigurationError(f"{name}={value!r} is async; it must be a plain function (group, request)")
