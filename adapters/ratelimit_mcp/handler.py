"""Limiting a tool from the inside: in its code, whatever carries the call, stdio included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from ratelimit import ConfigurationError, Decision, Identity, Limiter
from ratelimit.guard import Attributes, Guard
from ratelimit.kept import kept_guard
from ratelimit.plan import RuleLike
from ratelimit.rates import is_rate
from ratelimit.rules import read_rate
from ratelimit_mcp.answer import ERROR_CODE, valid_error_code
from ratelimit_mcp.caller import mcp_identity
from ratelimit_mcp.context import context_in
from ratelimit_mcp.limit import Budget
from ratelimit_mcp.registered import LIMITED, warn_if_registered
from ratelimit_mcp.spending import is_spent

Tool = TypeVar("Tool", bound=Callable[..., Any])


async def check_mcp_rate_limit(
    rule: RuleLike | None = None,
    *,
    rate: RuleLike | None = None,
    tool: str | None = None,
    ctx: Any = None,
    user: Any = None,
    key: str = "user_or_ip",
    cost: int = 1,
    attributes: Mapping[str, Any] | None = None,
    limiter: Limiter | None = None,
) -> Decision:
    """The decision on one call, in a tool's own code; true when it may go on. One round trip.

    `rule` is a category (`MCP_GLOBAL` if nothing is given), a `Rule` or a `Policy`, which may look at `tool`, `method` and
    what `attributes` tells; a rate (`rate=`, or as `rule`) counts for `tool` alone. The decision's `key` is the caller whose
    budget it is. `user` is who calls, where the application knows better than the request; `ctx` is the handler's context object,
    needed only over HTTP without `MCPRateLimit` around the SDK's application.
    """
    guard = _check_guard(rule, rate, key, tool, cost, attributes, limiter)
    return await guard.acheck(mcp_identity(ctx, user=user, settings=guard.limiter.settings), f"mcp:{tool}", tool)


def check_mcp_rate_limit_sync(
    rule: RuleLike | None = None,
    *,
    rate: RuleLike | None = None,
    tool: str | None = None,
    ctx: Any = None,
    user: Any = None,
    key: str = "user_or_ip",
    cost: int = 1,
    attributes: Mapping[str, Any] | None = None,
    limiter: Limiter | None = None,
) -> Decision:
    """`check_mcp_rate_limit` for a sync tool, which servers run in a thread."""
    guard = _check_guard(rule, rate, key, tool, cost, attributes, limiter)
    return guard.check(mcp_identity(ctx, user=user, settings=guard.limiter.settings), f"mcp:{tool}", tool)


def mcp_ratelimit(
    rule: RuleLike | None = None,
    *,
    rate: RuleLike | Callable[..., RuleLike | None] | None = None,
    tool: str | None = None,
    key: str | Callable[..., str | Identity] = "user_or_ip",
    cost: int | Callable[..., int] = 1,
    attributes: Attributes | None = None,
    error_code: int = ERROR_CODE,
    limiter: Limiter | None = None,
) -> Callable[[Tool], Tool]:
    """Decorates a tool's function, sync or async, under the server's own decorator.

    A denied call raises `MCPRateLimitExceeded` and the function does not run. A category, a `Rule` and a `Policy` count
    wherever they are named; a rate counts for this tool alone (under `tool`, else the function's module and name).
    Rules may look at `tool` (else the function's name), `method` and what `attributes` gives. `key`, `rate`, `cost` and
    `attributes` may be functions of the tool's arguments. What the wrapper or the server's middleware has counted for this
    call, the same rule for the same caller, is not counted again. Mistakes are a `ConfigurationError` right here; a function
    that a server has registered already is a `RuntimeWarning`, where that can be seen.
    """
    guard = _guard(
        _readable(rule),
        rate=_of_call(rate),
        key=_of_call(key),
        cost=_of_call(cost),
        attributes=_of_call(attributes),
        limiter=limiter,
    )
    code = valid_error_code(error_code)

    def decorate(function: Tool) -> Tool:
        warn_if_registered(function)
        group = f"mcp:{tool or f'{function.__module__}.{function.__qualname__}'}"
        name, budget = tool or function.__name__, _budget(guard, group)

        @wraps(function)
        async def limited_async(*args: Any, **kwargs: Any) -> Any:
            identity = _caller(guard, args, kwargs)
            if budget is None or not is_spent(guard.limiter, budget, identity, name):
                _raise_if_denied(await guard.acheck(identity, group, name, args, kwargs), code)
            return await function(*args, **kwargs)

        @wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            identity = _caller(guard, args, kwargs)
            if budget is None or not is_spent(guard.limiter, budget, identity, name):
                _raise_if_denied(guard.check(identity, group, name, args, kwargs), code)
            return function(*args, **kwargs)

        made: Any = limited_async if iscoroutinefunction(function) else limited
        setattr(made, LIMITED, True)
        return made  # type: ignore[no-any-return]

    return decorate


def _budget(guard: Guard, group: str) -> Budget | None:
    """What the guard takes one unit of, None if that depends on the call."""
    rule: Any = guard.rule if guard.rate is None else guard.rate
    if callable(rule) or callable(guard.key) or guard.cost != 1 or guard.attributes is not None:
        return None
    return Budget(rule, group if guard.counts_apart else None, guard.key)


def _check_guard(
    rule: RuleLike | None,
    rate: RuleLike | None,
    key: str,
    tool: str | None,
    cost: int,
    attributes: Mapping[str, Any] | None,
    limiter: Limiter | None,
) -> Guard:
    rule = "MCP_GLOBAL" if rule is None and rate is None else rule
    guard = _kept_guard(_readable(rule), rate=rate, key=key, cost=cost, attributes=attributes, limiter=limiter)
    if tool is None and guard.counts_apart:
        raise ConfigurationError("a rate needs tool=, the name to count it under")
    return guard


def _readable(rule: Any) -> Any:
    return read_rate(rule) if is_rate(rule) else rule


def _facts(tool: str | None, *_: Any) -> Mapping[str, Any]:
    """What rules may know of a call in a tool's code."""
    return {"method": "tools/call"} if tool is None else {"method": "tools/call", "tool": tool}


_guard = partial(Guard, facts=_facts, protocol="mcp")
_kept_guard = partial(kept_guard, facts=_facts, protocol="mcp")


def _of_call(option: Any) -> Any:
    """A function of a tool's arguments as one of (name, args, kwargs): no argument's name can get in the guard's way."""
    if not callable(option):
        return option

    def called(_: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return option(*args, **kwargs)

    return called


def _caller(guard: Guard, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Identity:
    return mcp_identity(context_in(*args, *kwargs.values()), settings=guard.limiter.settings)


def _raise_if_denied(decision: Decision, code: int) -> None:
    if not decision.allowed:
        from ratelimit_mcp.errors import exceeded

        raise exceeded(decision, code)
