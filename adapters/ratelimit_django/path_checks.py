"""System checks of path rules and answers.

| id | says |
|---|---|
| `ratelimit.E004` | `RATELIMIT_ANSWER` leads nowhere |
| `ratelimit.E010` | `RATELIMIT_PATHS`, or what goes with it, cannot be used |
| `ratelimit.E011` | the store cannot hold a path rule, or there is no rule of its name |
| `ratelimit.W010` | the middleware is there, and no `RATELIMIT_PATHS` |
| `ratelimit.W011` | `RATELIMIT_PATHS` are there, and no middleware |
| `ratelimit.W012` | the URLs take spellings of a path that the rules do not know |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as Caution
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.module_loading import import_string

import ratelimit.settings
from ratelimit import ConfigurationError, get_limiter
from ratelimit.answers import replacement
from ratelimit_django.conf import checked_settings
from ratelimit_django.holding import check_holds
from ratelimit_django.middleware import PathRateLimitMiddleware
from ratelimit_django.paths import FORMATS, FUNCTIONS, IGNORE_CASE, PATHS, PathLimits, path_limits
from ratelimit_django.references import Reference

AnyPattern = URLPattern | URLResolver


def check_answer(**_: Any) -> list[CheckMessage]:
    """Whether `RATELIMIT_ANSWER` names a function."""
    try:
        answer = ratelimit.settings.current().answer
    except ConfigurationError:
        return []  # another check tells
    try:
        replacement(answer)
    except ConfigurationError as error:
        return [Error(str(error), id="ratelimit.E004")]
    return []


def check_paths(**_: Any) -> list[CheckMessage]:
    """Whether the path rules can be used, and are."""
    try:
        limits = path_limits()
    except ConfigurationError as error:
        return [Error(str(error), id="ratelimit.E010")]
    if wrong := [*_functions(limits), *_unheld(limits)]:
        return wrong
    listed = any(map(_is_ours, getattr(settings, "MIDDLEWARE", ())))
    if listed and not limits:
        text = f"PathRateLimitMiddleware is in MIDDLEWARE, and {PATHS} is empty: it limits nothing"
        return [Caution(text, hint=f"Give rules in {PATHS}, or take it out.", id="ratelimit.W010")]
    if limits and not listed:
        text = f"{PATHS} has rules, and no middleware asks them: they limit nothing"
        hint = "Add 'ratelimit_django.middleware.PathRateLimitMiddleware' to MIDDLEWARE."
        return [Caution(text, hint=hint, id="ratelimit.W011")]
    return list(_spellings()) if limits else []


def _functions(limits: PathLimits) -> Iterator[CheckMessage]:
    """What is wrong with the functions that rules give by their dotted paths."""
    for rule in limits.rules.rules:
        for name in FUNCTIONS:
            given = getattr(rule, name)
            if not isinstance(given, Reference):
                continue
            try:
                given.plain()
            except ConfigurationError as error:
                yield Error(str(error), id="ratelimit.E010")


def _unheld(limits: PathLimits) -> Iterator[CheckMessage]:
    """The rules that the store cannot hold."""
    if not limits:
        return
    try:
        limiter = get_limiter()
        disabled = limiter.settings.disable
    except ConfigurationError as error:
        # Of the settings' values another check tells; this is a policy file that the store cannot hold.
        if _settings_are_good():
            yield Error(str(error), id="ratelimit.E011")
        return
    if disabled:
        return
    for rule in limits.rules.rules:
        try:
            check_holds(rule.rule, limiter)
        except ConfigurationError as error:
            yield Error(f"{PATHS}: path rule {rule.name!r}: {error}", id="ratelimit.E011")


def _settings_are_good() -> bool:
    try:
        checked_settings()
    except ConfigurationError:
        return False
    return True


def _is_ours(path: str) -> bool:
    try:
        found = import_string(path)
    except ImportError:
        return False  # Django tells when it loads it
    return isinstance(found, type) and issubclass(found, PathRateLimitMiddleware)


def _spellings() -> Iterator[CheckMessage]:
    patterns: list[AnyPattern] = []
    with suppress(Exception):  # Django's own checks tell what is wrong with the URLs
        patterns = list(_every(get_resolver().url_patterns))
    known: list[tuple[str, str, Callable[[AnyPattern], bool]]] = [
        (IGNORE_CASE, "ignore case", _ignores_case),
        (FORMATS, "take formats such as '.json' at the end of a path", _takes_formats),
    ]
    for name, what, does in known:
        if not getattr(settings, name, False) and (found := next(filter(does, patterns), None)):
            text = f"some URLs {what} ({str(found.pattern)!r}), and path rules do not: such spellings meet other rules"
            yield Caution(text, hint=f"Set {name} = True.", id="ratelimit.W012")


def _every(patterns: Iterable[AnyPattern]) -> Iterator[AnyPattern]:
    for one in patterns:
        yield one
        if isinstance(one, URLResolver):
            yield from _every(one.url_patterns)


def _ignores_case(one: AnyPattern) -> bool:
    return bool(one.pattern.regex.flags & re.IGNORECASE)


def _takes_formats(one: AnyPattern) -> bool:
    return "(?P<format>" in one.pattern.regex.pattern
