"""Named kinds of work and their default rates, reachable as `RateLimits.AI_QUERY` and by name `"AI_QUERY"`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ratelimit.errors import ConfigurationError, UnknownCategory
from ratelimit.rates import Rate

SETTING_NAMES = frozenset(
    {
        "ANSWER",
        "CLIENT_HEADER",
        "DENIAL_CACHE_MS",
        "DISABLE",
        "ERRORS",
        "EXPLAIN",
        "FAIL_OPEN",
        "HEADERS",
        "IPV6_MASK",
        "KEY_PREFIX",
        "PATHS",
        "PATHS_EXEMPT",
        "PATHS_FORMATS",
        "PATHS_IGNORE_CASE",
        "POLICY_FILE",
        "PROXIES_COUNT",
        "STORE",
        "TRUSTED_PROXIES",
        "USE_CACHE",
        "VIEW",
    }
)
"""What follows `RATELIMIT_` in a setting's name; a category cannot have one of these names."""

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Category:
    """A kind of work: its name and the rate it has unless `RATELIMIT_<NAME>` says otherwise."""

    name: str
    rate: Rate

    def __str__(self) -> str:
        return self.name


def _category(name: str, rate: str) -> Category:
    return Category(name, Rate.parse(rate))


class Categories:
    """Every category an application knows: the ones below, and its own by `add`."""

    AUTH_LOGIN = _category("AUTH_LOGIN", "5/m")
    AUTH_REGISTER = _category("AUTH_REGISTER", "3/m")
    AUTH_PASSWORD_RESET = _category("AUTH_PASSWORD_RESET", "3/h")
    READ_LIGHT = _category("READ_LIGHT", "100/m")
    READ_MEDIUM = _category("READ_MEDIUM", "30/m")
    READ_HEAVY = _category("READ_HEAVY", "10/m")
    WRITE_LIGHT = _category("WRITE_LIGHT", "30/m")
    WRITE_MEDIUM = _category("WRITE_MEDIUM", "10/m")
    WRITE_HEAVY = _category("WRITE_HEAVY", "5/m")
    AI_ANALYSIS = _category("AI_ANALYSIS", "5/m")
    AI_EXTRACT = _category("AI_EXTRACT", "10/m")
    AI_QUERY = _category("AI_QUERY", "20/m")
    EXPORT = _category("EXPORT", "5/h")
    IMPORT = _category("IMPORT", "10/h")
    ADMIN_OPERATION = _category("ADMIN_OPERATION", "100/m")
    ADMIN_LOGIN_PAGE = _category("ADMIN_LOGIN_PAGE", "20/m")
    WS_CONNECT = _category("WS_CONNECT", "10/m")
    WS_HEARTBEAT = _category("WS_HEARTBEAT", "120/m")
    MCP_GLOBAL = _category("MCP_GLOBAL", "100/m")

    def __init__(self) -> None:
        builtin = (value for value in vars(type(self)).values() if isinstance(value, Category))
        self._by_name = {category.name: category for category in builtin}
        self._watchers: list[Callable[[], None]] = []

    def add(self, name: str, rate: str | Rate) -> Category:
        """A new category, known from now on as `RateLimits.<name>` and by its name.

        `name` is in capitals, digits and underscores. Adding the same name and rate again changes nothing, so a
        module may be imported twice; the same name with another rate is a `ConfigurationError`.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"category name {name!r}: use capitals, digits and underscores, as in 'REPORT_BUILD'"
            )
        if name in SETTING_NAMES:
            raise ConfigurationError(f"category name {name!r} is taken: RATELIMIT_{name} is a setting")
        category = Category(name, rate if isinstance(rate, Rate) else Rate.parse(rate))
        known = self._by_name.setdefault(name, category)
        if known != category:
            raise ConfigurationError(
                f"category {name!r} already has the rate {str(known.rate)!r}, not {str(category.rate)!r}"
            )
        for watcher in self._watchers:
            watcher()
        return known

    def watch(self, watcher: Callable[[], None]) -> None:
        """Has `watcher` called when a category has been added."""
        self._watchers.append(watcher)

    def __getitem__(self, name: str) -> Category:
        try:
            return self._by_name[name]
        except (KeyError, TypeError):
            from difflib import get_close_matches  # only a mistake needs it

            near = get_close_matches(str(name).upper(), self._by_name, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UnknownCategory(
                f"unknown category {name!r}; valid ones: {', '.join(sorted(self._by_name))}{hint}"
            ) from None

    def __getattr__(self, name: str) -> Category:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Category]:
        return iter(tuple(self._by_name.values()))


RateLimits = Categories()
"""The categories of this process."""
