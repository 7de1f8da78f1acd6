"""One limit on views: whom it counts, when, and what it notes on the request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest

from ratelimit import Category, ConfigurationError, Decision, Identity, Limiter, Policy, Rate, Rule
from ratelimit.guard import RULES, Attributes, Guard
from ratelimit.plan import RuleLike
from ratelimit.settings import Settings
from ratelimit_django.callers import Caller, ViewKey, parse_key
from ratelimit_django.identity import arequest_identity, request_identity
from ratelimit_django.methods import counted_methods
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
    """What `view_ratelimit` was told. Raises `ConfigurationError` for what cannot be used."""

    def __init__(
        self,
        rule: RuleLike | None,
        *,
        key: ViewKey,
        rate: ViewRate,
        group: str | None,
        method: str | Iterable[str],
        cost: int | Callable[..., int],
        attributes: Attributes | None = None,
        limiter: Limiter | None,
    ) -> None:
        self.number = next(_numbers)
        _refuse_async(key=key, rate=rate, cost=cost, attributes=attributes)
        if rule is not None and not isinstance(rule, (str, Category, Rate, Rule, Policy)):
            raise ConfigurationError(f"{rule!r} is not a category; write @view_ratelimit(rate='10/m') above the view")
        self._methods = counted_methods(method)
        self._caller = parse_key(key)
        self._guard = Guard(
            rule,
            rate=_guard_rate(rate, self._caller),
            key=self._caller.strategy,
            group=group,
            cost=cost,
            attributes=attributes,
            facts=_facts,
            protocol=PROTOCOL,
            limiter=limiter,
        )
        limit = self._guard.rule or self._guard.rate
        _refuse_value(self._caller, limit)
        if isinstance(limit, (Rule, Policy)):
            self._needs_user = any(map(_needs_user, Policy(limit)))
        else:
            self._needs_user = self._caller.needs_user or not isinstance(limit, Rate)

    @property
    def headers(self) -> str:
        """The style of the limit headers."""
        return self._guard.limiter.settings.headers

    def check(self, request: HttpRequest, group: str) -> Decision | None:
        """The decision on `request`, noted on it; None where this limit does not count it."""
        settings = self._guard.limiter.settings
        if not self._counts(request, settings):
            return note(request, None)
        identity = request_identity(request, settings=settings, user=self._needs_user)
        return note(request, self._guard.check(*self._asked(request, group, identity), request))

    async def acheck(self, request: HttpRequest, group: str) -> Decision | None:
        """`check` for an event loop."""
        settings = self._guard.limiter.settings
        if not self._counts(request, settings):
            return note(request, None)
        identity = await arequest_identity(request, settings=settings, user=self._needs_user)
        return note(request, await self._guard.acheck(*self._asked(request, group, identity), request))

    def _counts(self, request: HttpRequest, settings: Settings) -> bool:
        return not settings.disable and (self._methods is None or request.method in self._methods)

    def _asked(self, request: HttpRequest, group: str, identity: Identity) -> tuple[Identity, str, str]:
        """The caller, where a rate counts, and what callables are told of that."""
        group = self._guard.group or group
        return identity if self._caller.value is None else self._caller.of(request, identity), group, group


def note(request: Any, decision: Decision | None) -> Decision | None:
    """Sets `request.limited`, True as soon as one of a view's limits was exceeded, `request.limit_decision`, the decision
    that constrains the request most so far, and `request.limit_key`, the caller whose budget that is.

    Gives `decision`, None where nothing was counted.
    """
    if decision is not None and not decision.counted:
        decision = None
    limited = decision is not None and not decision.allowed
    request.limited = limited or getattr(request, "limited", False)
    strictest = _stricter(getattr(request, "limit_decision", None), decision)
    request.limit_decision = strictest
    request.limit_key = None if strictest is None else strictest.key
    return decision


def _stricter(one: Decision | None, other: Decision | None) -> Decision | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other, key=_strictness)


def _strictness(decision: Decision) -> tuple[bool, float]:
    if decision.allowed:
        shadow = not any(part.enforced for part in decision.parts)  # which constrains nothing
        return False, float("-inf") if shadow else -decision.remaining
    wait = decision.retry_after
    return True, float("inf") if wait is None else wait


def _facts(group: str, request: HttpRequest) -> Mapping[str, Any]:
    """What rules may know of a request: its path as the router sees it, its method."""
    return {"path": request.path_info, "method": request.method}


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
