"""The engine's own checks, through the public interface alone."""

from __future__ import annotations

from typing import Any

from benchmarks.checks import Check, Goal
from benchmarks.rates import BUCKET, CALLERS, CATEGORY, WINDOW
from ratelimit import Limiter, Rate, RateLimits, Rule
from ratelimit.stores.base import Store

FIGURES = "; decision.limit, decision.remaining, decision.retry_after, decision.reset_after"
HEADERS = "; decision.headers('x')"
ANSWERED = "; decision.degraded and failed.append(i)"
"""A decision that was made without the store is no check, and must not pass for a fast one."""


def checks(store: Store | str, caller: str, goal: Goal | None = None) -> list[Check]:
    """Sync checks of a limiter on `store`, a full decision each; the goal is for those that ask for nothing more."""
    names, more = _names(store)
    return [
        _check("category", f"limiter.check({CATEGORY!r}, {caller})" + more, names, goal),
        _check("token bucket", f"limiter.check(bucket, {caller})" + more, names, goal),
        _check("Rate in a group", f"limiter.check(window, {caller}, group='bench')" + more, names, goal),
        _check("figures read", f"limiter.check({CATEGORY!r}, {caller})" + more + FIGURES, names),
        _check("with headers", f"limiter.check({CATEGORY!r}, {caller})" + more + HEADERS, names),
    ]


def leased(store: Store | str, caller: str) -> Check:
    """A sync check of a rule that takes 50 units at a time. Not to be compared with one that makes a trip: others see its
    units used before they are."""
    names, more = _names(store)
    names["leased"] = Rule("leased", WINDOW, lease=50)
    return _check("with a lease of 50", f"limiter.check(leased, {caller})" + more, names)


def achecks(store: Store | str, caller: str, goal: Goal | None = None) -> list[Check]:
    """`checks` in an event loop."""
    names, more = _names(store)
    return [
        _check("category", f"await limiter.acheck({CATEGORY!r}, {caller})" + more, names, goal),
        _check("token bucket", f"await limiter.acheck(bucket, {caller})" + more, names, goal),
        _check("with headers", f"await limiter.acheck({CATEGORY!r}, {caller})" + more + HEADERS, names),
    ]


def _names(store: Store | str) -> tuple[dict[str, Any], str]:
    """What the statements name, and what they do beside checking."""
    RateLimits.add(CATEGORY, WINDOW)
    names = {
        "limiter": Limiter(store),
        "window": Rate.parse(WINDOW),
        "bucket": Rule("bucket", BUCKET),
        "callers": CALLERS,
    }
    return names, ANSWERED if isinstance(store, str) else ""


def _check(how: str, statement: str, names: dict[str, Any], goal: Goal | None = None) -> Check:
    return Check(f"ratelimit, {how}", "decision = " + statement, names, True, goal)
