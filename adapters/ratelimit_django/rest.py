"""Limits in Django REST framework: a throttle on the same engine, and its errors in the form that every adapter answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

from django.http.response import HttpResponseBase
from rest_framework.exceptions import Throttled
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView, set_rollback
from rest_framework.views import exception_handler as rest_exception_handler

from ratelimit import ConfigurationError, Decision, Limiter
from ratelimit.answers import exposed
from ratelimit.guard import Attributes
from ratelimit.plan import RuleLike
from ratelimit_django.callers import ViewKey
from ratelimit_django.limits import Limit
from ratelimit_django.noted import note, shown
from ratelimit_django.responses import denied_response
from ratelimit_django.throttles import throttle_limit, throttled

_OPTIONS = ("key", "group", "cost", "attributes", "limiter")


class RateLimitThrottle(BaseThrottle):  # type: ignore[misc]
    """A throttle for `throttle_classes` and `DEFAULT_THROTTLE_CLASSES`.

    Its rule is the class attribute `rule` of a subclass (`RateLimitThrottle.of("AI_QUERY")` makes one), else the view's
    `throttle_rule`, None for no limit. In `DEFAULT_THROTTLE_CLASSES` it does not limit views without either; in a view's own
    `throttle_classes` it needs one. A category, a `Rule`, a `Policy` or the name of one is a budget that all who name it share; a
    rate (`"10/m"`, a `Rate`) is one for each view, and for each action that has a throttle or a `throttle_rule` to itself, unless
    `group` names it. `key`, `cost` and `attributes` are as in `view_ratelimit`; functions are given (group, request).

    Raises `ConfigurationError` for what cannot be used, when the class is made; for a `throttle_rule`, and for
    one that is missing, at the first request.
    """

    rule: ClassVar[RuleLike | None] = None
    key: ClassVar[ViewKey] = None
    group: ClassVar[str | None] = None
    cost: ClassVar[int | Callable[..., int]] = 1
    attributes: ClassVar[Attributes | None] = None
    limiter: ClassVar[Limiter | None] = None
    _limit: ClassVar[Limit | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._limit = None if cls.rule is None else _limit_of(cls, cls.rule)

    def __init__(self) -> None:
        self.decision: Decision | None = None

    @classmethod
    def of(cls, rule: RuleLike, **options: Any) -> type[RateLimitThrottle]:
        """A throttle with this rule. `options` are `key`, `group`, `cost`, `attributes` and `limiter`."""
        for name in options:
            if name not in _OPTIONS:
                raise ConfigurationError(
                    f"throttle: there is no option {name!r}; the options are {', '.join(_OPTIONS)}"
                )
        if rule is None:
            raise ConfigurationError("throttle: None is neither a rule nor a rate, as in 'AI_QUERY' or '10/m'")
        return type(cls.__name__, (cls,), {"rule": rule, "__module__": cls.__module__, **options})

    def allow_request(self, request: Any, view: Any) -> bool:
        """Whether the request may go on. Notes on it what `view_ratelimit` notes, and gives its response the limit headers."""
        kind: Any = type(self)
        rule = getattr(view, "throttle_rule", None)
        limit = self._limit or (None if rule is None else _views_limit(kind, rule))
        if limit is None:
            _refuse_forgotten(kind, view)
            note(request, None)
            return True
        self.decision = throttled(limit, request, _group(kind, view))
        if self.decision is None:
            return True
        _show(view, shown(request), limit.settings.headers)
        return self.decision.allowed

    def wait(self) -> Any:
        """Whole seconds until the request could pass, rounded up; None if it never can."""
        return None if self.decision is None else self.decision.retry_after_seconds


def exception_handler(exc: Exception, context: dict[str, Any]) -> HttpResponseBase | None:
    """Django REST framework's own, with the answer of every adapter for what a `RateLimitThrottle` refused.

    For its setting: `"EXCEPTION_HANDLER": "ratelimit_django.rest.exception_handler"`.
    """
    request = context.get("request")
    decision = getattr(request, "limit_decision", None)
    if request is None or not isinstance(exc, Throttled) or decision is None or decision.allowed:
        found: HttpResponseBase | None = rest_exception_handler(exc, context)
        return found
    set_rollback()
    return denied_response(request._request, decision)


def _limit_of(throttle: type[RateLimitThrottle], rule: RuleLike) -> Limit:
    return throttle_limit(rule, **{name: getattr(throttle, name) for name in _OPTIONS})


@lru_cache(maxsize=256)
def _views_limit(throttle: Any, rule: Any) -> Limit:
    """The limit of a view's `throttle_rule`, which may be another one at each request."""
    return _limit_of(throttle, rule)


def _refuse_forgotten(throttle: type[RateLimitThrottle], view: Any) -> None:
    """Raises `ConfigurationError` for a view that names a throttle itself and has no rule for it, which may be misspelt."""
    by_default = view.throttle_classes is APIView.throttle_classes  # which @api_view hands on
    if by_default or hasattr(view, "throttle_rule"):
        return
    raise ConfigurationError(
        f"view {_name(view)} has the throttle {throttle.__name__} and no throttle_rule: nothing would be limited; write "
        f"throttle_rule = '10/m' in the view, or {throttle.__name__}.of('10/m') in its throttle_classes; to mean no limit, "
        "throttle_rule = None"
    )


def _show(view: Any, decision: Any, style: str) -> None:
    """Gives the view's response the limit's headers, but for `Retry-After`: the framework sets it, by all throttles."""
    told = decision.headers(style)
    if not decision.allowed:
        view.headers.update({"Cache-Control": "no-store", "Access-Control-Expose-Headers": exposed(told)})
    told.pop("Retry-After", None)
    view.headers.update(told)


def _group(throttle: type[RateLimitThrottle], view: Any) -> str:
    """The budget of a view: its name, that of an action with limits of its own, and which throttle it is of several."""
    name = _name(view)
    of_action = not vars(view).keys().isdisjoint({"throttle_classes", "throttle_rule"})
    if of_action and getattr(view, "action", None):
        name += f".{view.action}"
    several = list(view.throttle_classes)
    if throttle not in several:  # the view chooses its throttles when it is asked
        return f"{name}:{throttle.__module__}.{throttle.__qualname__}"
    number = several.index(throttle) + 1
    return name if number == 1 else f"{name}#{number}"


def _name(view: Any) -> str:
    owner = type(view)
    name = f"{owner.__module__}.{owner.__qualname__}"
    if owner.__qualname__.rpartition(".")[2] != owner.__name__:  # made of a function by @api_view
        name = f"{owner.__module__}.{owner.__name__}"
    elif "<locals>" not in name:
        return name
    # Several functions, and classes made in functions, may have one name. Their routes tell them apart in every process.
    match = getattr(view.request, "resolver_match", None)
    return name if match is None else f"{name}+{match.route}"
