"""What the throttles of Django REST framework and Django Ninja have in common: a limit that a framework asks, and callers that
it has authenticated itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ratelimit import Category, ConfigurationError, Decision, Limiter, Policy, Rate, Rule
from ratelimit.guard import Attributes
from ratelimit.plan import RuleLike
from ratelimit.rates import is_rate
from ratelimit_django.callers import ViewKey
from ratelimit_django.limits import UNSET, Limit, view_limit

_REFUSED: Final = "_ratelimit_refused"


class Authenticated:
    """A request as its framework has authenticated it: what `request.auth` is counts as the user, if it is one, and as the
    token that the application accepted, if it is a text or has a `key`. Everything else is the request's own, the
    framework's or Django's."""

    __slots__ = ("_given", "_request", "limit_token", "user")

    def __init__(self, request: Any) -> None:
        auth = getattr(request, "auth", None)
        is_user = getattr(auth, "is_authenticated", False) is True and getattr(auth, "pk", None) is not None
        keep = partial(object.__setattr__, self)
        keep("_given", request)
        keep("_request", getattr(request, "_request", request))
        keep("user", auth if is_user else getattr(request, "user", None))
        keep("limit_token", getattr(request, "limit_token", None) or _token(auth))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._given, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._given, name, value)


def _token(auth: Any) -> str | None:
    # Nothing else: what is written differently at every request would be a new caller at every request.
    for found in (auth, getattr(auth, "key", None)):
        if isinstance(found, str) and found:
            return found
    return None


def throttle_limit(
    rule: RuleLike,
    *,
    key: ViewKey = None,
    group: str | None = None,
    cost: int | Callable[..., int] = 1,
    attributes: Attributes | None = None,
    limiter: Limiter | None = None,
) -> Limit:
    """The limit of a throttle. `rule` is a category, a `Rule`, a `Policy` or the name of one, whose budget is shared; or a rate
    with a budget of the view's own. Raises `ConfigurationError` for what cannot be used."""
    if not isinstance(rule, (str, Category, Rate, Rule, Policy)):
        raise ConfigurationError(f"throttle: {rule!r} is neither a rule nor a rate, as in 'AI_QUERY' or '10/m'")
    own = is_rate(rule)
    return view_limit(
        None if own else rule,
        key=key,
        rate=rule if own else UNSET,
        group=group,
        cost=cost,
        attributes=attributes,
        limiter=limiter,
    )


def throttled(limit: Limit, request: Any, group: str) -> Decision | None:
    """The decision on a request, None where it is not counted.

    Frameworks ask every throttle of a view, whatever the others said. What one refused spends nothing of the next ones, which
    only tell how long they would have to be waited for.
    """
    seen: Any = Authenticated(request)
    if getattr(request, _REFUSED, False):
        return limit.look(seen, group)
    decision = limit.check(seen, group)
    if decision is not None and not decision.allowed:
        # On the framework's own request where there is one: Django's may be given to another view, whose limits are its own.
        setattr(request, _REFUSED, True)
    return decision
