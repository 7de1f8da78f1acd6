"""The path rules of Django's settings: `RATELIMIT_PATHS` and what goes with it, read anew when it changes.

Rules:
- An entry is a `PathRule`, or a mapping of its fields. What is a function there may be given by its dotted path.
- An error names the setting, the entry's index and what is wrong with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.signals import setting_changed
from django.http import HttpRequest

from ratelimit import ConfigurationError
from ratelimit.paths import PathRule, PathRules, is_preflight
from ratelimit_django.limits import Limit, path_limit
from ratelimit_django.references import Reference, is_path
from ratelimit_django.responses import header_of

PATHS: Final = "RATELIMIT_PATHS"
EXEMPT: Final = "RATELIMIT_PATHS_EXEMPT"
IGNORE_CASE: Final = "RATELIMIT_PATHS_IGNORE_CASE"
FORMATS: Final = "RATELIMIT_PATHS_FORMATS"
_DEFAULTS: Final[dict[str, Any]] = {PATHS: (), EXEMPT: (), IGNORE_CASE: False, FORMATS: False}
_FIELDS: Final = tuple(field.name for field in fields(PathRule))
FUNCTIONS: Final = ("key", "cost", "attributes")


class PathLimits:
    """Which limit means a request."""

    def __init__(self, rules: PathRules) -> None:
        self.rules = rules
        self._limits = {rule: path_limit(rule) for rule in rules.rules}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def find(self, request: HttpRequest) -> tuple[Limit, str] | None:
        """The limit and the name of its rule; None if no rule means the request, or it is a CORS preflight, which only rules
        that name OPTIONS mean."""
        method = request.method or ""
        rule = self.rules.find(request.path_info, method, host_of(request) if self.rules.has_hosts else "")
        if rule is None:
            return None
        if is_preflight(method, partial(header_of, request)) and "OPTIONS" not in rule.methods:
            return None
        return self._limits[rule], f"path:{rule.name}"


_current: PathLimits | None = None
_edition = object()


def path_limits() -> PathLimits:
    """The limits of the settings, read on the first call and when one changes. Raises `ConfigurationError` for what cannot be
    used."""
    global _current
    limits = _current
    if limits is None:
        edition = _edition
        given = {name: getattr(settings, name, default) for name, default in _DEFAULTS.items()}
        limits = _current = PathLimits(_path_rules(*given.values()))
        if edition is not _edition:  # a setting changed while another thread was reading them
            _current = None
    return limits


def _changed(*, setting: str, **_: object) -> None:
    global _current, _edition
    if setting.startswith(PATHS):
        _edition = object()
        _current = None


setting_changed.connect(_changed, dispatch_uid="ratelimit_django.paths")


def _path_rules(paths: object, exempt: Any, ignore_case: object, formats: object) -> PathRules:
    for name in _DEFAULTS:
        if name in os.environ:
            raise ConfigurationError(
                f"{name} is a variable of the environment; it can only be one of Django's settings"
            )
    for name, flag in ((IGNORE_CASE, ignore_case), (FORMATS, formats)):
        if not isinstance(flag, bool):
            raise ConfigurationError(f"{name}={flag!r}: expected True or False")
    if not isinstance(paths, (list, tuple)):
        raise ConfigurationError(f"{PATHS}={paths!r}: expected a list of PathRule('/prefix', '100/m'), or of mappings")
    rules = [_path_rule(index, entry) for index, entry in enumerate(paths)]
    try:
        return PathRules(rules, exempt, ignore_case=bool(ignore_case), formats=bool(formats))
    except ConfigurationError as error:
        raise ConfigurationError(f"{PATHS} with {EXEMPT}={exempt!r}: {error}") from None


def _path_rule(index: int, entry: object) -> PathRule:
    if isinstance(entry, PathRule):
        return entry
    where = f"{PATHS}[{index}]={entry!r}"
    if not isinstance(entry, Mapping):
        raise ConfigurationError(f"{where}: expected PathRule('/prefix', '100/m'), or a mapping of its fields")
    for name in entry:
        if name not in _FIELDS:
            raise ConfigurationError(f"{where}: there is no field {name!r}; the fields are {', '.join(_FIELDS)}")
    for name in _FIELDS[:2]:
        if name not in entry:
            raise ConfigurationError(f"{where}: it lacks {name!r}")
    try:
        return PathRule(**{name: _loaded(index, name, value) for name, value in entry.items()})
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _loaded(index: int, name: str, value: Any) -> Any:
    if name not in FUNCTIONS or not is_path(value):
        return value
    return Reference(value, f"{PATHS}[{index}]: {name}", listed=False)  # the check of paths looks at it


def host_of(request: HttpRequest) -> str:
    """The host that a request names; empty for one that is not allowed."""
    try:
        return request.get_host()
    except DisallowedHost:
        return ""  # Django answers 400 when it looks at the host itself
