"""`view_ratelimit`: limits on views, sync and async, functions, methods and classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import isawaitable
from typing import Any, TypeGuard, TypeVar

from ratelimit import Decision, Limiter
from ratelimit.guard import Attributes
from ratelimit.plan import RuleLike
from ratelimit_django.callers import ViewKey
from ratelimit_django.groups import DefaultGroup
from ratelimit_django.limits import UNSET, Limit, ViewRate, view_limit
from ratelimit_django.methods import ALL, UNSAFE
from ratelimit_django.noted import shown
from ratelimit_django.responses import add_headers, adenied_response, denied_response, is_async

AnyView = TypeVar("AnyView", bound=Callable[..., Any])


def view_ratelimit(
    rule: RuleLike | None = None,
    *,
    key: ViewKey = None,
    rate: ViewRate = UNSET,
    block: bool = True,
    group: str | None = None,
    method: str | Iterable[str] = ALL,
    cost: int | Callable[..., int] = 1,
    attributes: Attributes | None = None,
    limiter: Limiter | None = None,
) -> Callable[[AnyView], AnyView]:
    """A decorator that limits a view.

    Give `rule` (a category, a `Rule`, a `Policy`, or the name of one) to spend the budgets that every place naming it
    shares, or `rate` for a budget of the view's own: rate text, a `Rate`, a category or its name, (limit, seconds), a
    dotted path, a callable `(group, request)`; None is no limit. `key` says who is counted: `user_or_ip` (the default),
    `user`, `ip`, `token_or_ip`, `global`, `header:NAME`, `get:NAME`, `post:NAME`, a dotted path or a callable
    `(group, request)`. Rules have their own `by` instead; they may look at `path`, `method` and what `attributes` (a
    mapping, or a callable giving one) tells.

    With `block` (the default) a denied request is answered 429, or by `RATELIMIT_VIEW`; without, the view is called.
    Either way `request.limited` tells whether a limit was exceeded, `request.limit_decision` has the figures, and
    `request.limit_key` is the caller whose budget that is: `user:42`.
    `group` names the budget (by default the view); `method` restricts what is counted; `cost` is what a request costs.

    Raises `ConfigurationError` for anything of this that cannot be used, when the view is decorated.
    """
    limit = view_limit(
        rule, key=key, rate=rate, group=group, method=method, cost=cost, attributes=attributes, limiter=limiter
    )

    def view_ratelimit(view: AnyView) -> AnyView:
        return _Limited(view, limit, block).decorate()  # type: ignore[return-value]

    return view_ratelimit


# As in django-ratelimit: method=view_ratelimit.UNSAFE.
view_ratelimit.ALL = ALL  # type: ignore[attr-defined]
view_ratelimit.UNSAFE = UNSAFE  # type: ignore[attr-defined]


class _Limited:
    """One limit around one view. `decorate` gives what takes the view's place; it is not kept here, for the life of the
    two would be a circle, and the view's name would not be free as soon as the view is gone."""

    _group: DefaultGroup

    def __init__(self, view: Callable[..., Any], limit: Limit, block: bool) -> None:
        self._view = view
        self._limit = limit
        self._block = block

    def decorate(self) -> Callable[..., Any]:
        decorated = self._async_form() if is_async(self._view) else self._sync_form()
        self._group = DefaultGroup(self._view, decorated, self._limit.number)
        return decorated

    def _sync_form(self) -> Callable[..., Any]:
        @wraps(self._view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            instance, request = _instance_and_request(self._group, args)
            answer = self._acall if self._group.is_async(instance) else self._call
            return answer(request, self._group(instance, request), args, kwargs)

        return limited

    def _async_form(self) -> Callable[..., Any]:
        @wraps(self._view)
        async def limited(*args: Any, **kwargs: Any) -> Any:
            instance, request = _instance_and_request(self._group, args)
            return await self._acall(request, self._group(instance, request), args, kwargs)

        return limited

    def _call(self, request: Any, group: str, args: Any, kwargs: Any) -> Any:
        decision = self._limit.check(request, group)
        if self._block and _denied(decision):
            return denied_response(request, decision, settings=self._limit.settings)
        return self._with_headers(self._view(*args, **kwargs), request)

    async def _acall(self, request: Any, group: str, args: Any, kwargs: Any) -> Any:
        decision = await self._limit.acheck(request, group)
        if self._block and _denied(decision):
            return await adenied_response(request, decision, settings=self._limit.settings)
        response = self._view(*args, **kwargs)
        return self._with_headers(await response if isawaitable(response) else response, request)

    def _with_headers(self, response: Any, request: Any) -> Any:
        decision = shown(request)
        return response if decision is None else add_headers(response, decision, self._limit.settings.headers)


def _denied(decision: Decision | None) -> TypeGuard[Decision]:
    return decision is not None and not decision.allowed


def _instance_and_request(group: DefaultGroup, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """The object whose method is called, None for a function, and the request."""
    if args and hasattr(args[0], "META"):
        return group.instance, args[0]
    if len(args) > 1 and hasattr(args[1], "META"):
        return args[0], args[1]
    raise TypeError(f"view_ratelimit: {group} was called without a request as its first argument")
