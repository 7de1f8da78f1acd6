"""The settings: from the environment, from a mapping under it (Django's settings), or explicitly in code.

Rules:
- Explicit values win over the environment, the environment wins over the mapping, the mapping over the defaults.
- Unset or blank means the default. A value that does not parse is a `ConfigurationError` that names variable and text.
- Settings are read when first needed and kept; `reload()` and `override()` make a change take effect at once.
"""

from __future__ import annotations

import logging
import os
import re
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from ratelimit.categories import SETTING_NAMES, Category, RateLimits
from ratelimit.chain import X_FORWARDED_FOR
from ratelimit.errors import ConfigurationError
from ratelimit.headers import HEADER_STYLES
from ratelimit.proxies import header_name, is_proxied, networks
from ratelimit.rates import Rate
from ratelimit.rules import Policy
from ratelimit.stores import SCHEMES, known_scheme, redacted

logger = logging.getLogger("ratelimit")

PREFIX: Final = "RATELIMIT_"
ERROR_FORMS: Final = ("json", "problem")
_DIGITS = re.compile(r"[0-9]{1,9}")
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings without their prefix: `proxies_count` is `RATELIMIT_PROXIES_COUNT`. Values are checked when made.

    `overrides` holds the rates that replace categories' own ones, by category name, as `Rate` or rate text. `policies`
    holds what the file `policy_file` (a path, empty for none) says; it is read when the settings are made.
    """

    disable: bool = False
    fail_open: bool = True
    key_prefix: str = "rl"
    ipv6_mask: int = 64
    proxies_count: int = 0
    trusted_proxies: Any = ()
    client_header: str = X_FORWARDED_FOR
    use_cache: str = "default"
    store: str = field(default="memory://", repr=False)  # may hold a password
    denial_cache_ms: int = 500
    headers: str = "none"
    errors: str = "json"
    answer: Any = ""
    explain: bool = False
    policy_file: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict, hash=False)
    policies: Mapping[str, Policy] = field(init=False, repr=False, compare=False)
    proxied: bool = field(init=False, repr=False, compare=False)
    """Whether a proxy is configured: whether any forwarding header is ever read."""

    def __post_init__(self) -> None:
        for name in ("disable", "fail_open", "explain"):
            object.__setattr__(self, name, _boolean(name, getattr(self, name)))
        object.__setattr__(self, "ipv6_mask", _whole("ipv6_mask", self.ipv6_mask, 1, 128))
        object.__setattr__(self, "proxies_count", _whole("proxies_count", self.proxies_count, 0, 100))
        object.__setattr__(self, "trusted_proxies", networks(self.trusted_proxies))
        object.__setattr__(self, "client_header", header_name(self.client_header))
        object.__setattr__(self, "proxied", is_proxied(self.proxies_count, self.trusted_proxies, self.client_header))
        object.__setattr__(self, "denial_cache_ms", _whole("denial_cache_ms", self.denial_cache_ms, 0, 60_000))
        object.__setattr__(self, "headers", _one_of("headers", self.headers, HEADER_STYLES))
        object.__setattr__(self, "errors", _one_of("errors", self.errors, ERROR_FORMS))
        _answer("answer", self.answer)
        object.__setattr__(self, "store", _store("store", self.store))
        _text("use_cache", self.use_cache)
        _prefix("key_prefix", self.key_prefix)
        rates = {RateLimits[name].name: _rate(name, value) for name, value in self.overrides.items()}
        object.__setattr__(self, "overrides", MappingProxyType(rates))
        object.__setattr__(self, "policy_file", _path("policy_file", self.policy_file))
        object.__setattr__(self, "policies", MappingProxyType(_policies(self.policy_file)))

    @classmethod
    def load(cls, environ: Mapping[str, str], below: Mapping[str, object] | None = None, **explicit: Any) -> Settings:
        """Settings from `environ`, over those in `below`, with `explicit` ones on top; names in both carry the prefix."""
        found: dict[str, Any] = {}
        for source in (below or {}, environ):
            found |= {name: value for name, value in source.items() if name.startswith(PREFIX) and not _blank(value)}
        fields = {
            f.lower(): found[PREFIX + f] for f in SETTING_NAMES if PREFIX + f in found and f.lower() in cls.__slots__
        }
        known = {c.name: found[PREFIX + c.name] for c in RateLimits if PREFIX + c.name in found}
        known |= explicit.pop("overrides", {})
        settings = cls(**{**fields, "overrides": known, **explicit})
        # Django's cache is asked for by alias, which has a setting of its own.
        return replace(settings, store=f"django://{settings.use_cache}") if settings.store == "django://" else settings

    def rate(self, category: Category) -> Rate:
        """The rate `category` has under these settings."""
        return self.overrides.get(category.name, category.rate)  # type: ignore[no-any-return]


def unknown_names(names: Iterator[str] | Mapping[str, object]) -> dict[str, str | None]:
    """The `RATELIMIT_…` names that are neither a setting nor a category, each with the nearest valid name, if any."""
    valid = [*sorted(SETTING_NAMES), *(category.name for category in RateLimits)]
    rests = [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]
    unknown = [rest for rest in rests if rest not in valid]
    if not unknown:
        return {}
    from difflib import get_close_matches  # only a mistake needs it

    near = {rest: get_close_matches(rest, valid, 1) for rest in unknown}
    return {PREFIX + rest: PREFIX + found[0] if found else None for rest, found in near.items()}


def warn_of_unknown(environ: Mapping[str, str]) -> None:
    """Logs the names in `environ` that mean nothing, once each: a misspelt one would leave its default in force."""
    for name, near in unknown_names(environ).items():
        if name not in _warned:
            _warned.add(name)
            hint = f"; did you mean {near}?" if near else ""
            logger.warning("%s is neither a setting nor the rate of a known category%s", name, hint)


def _blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _bad(name: str, value: object, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{PREFIX}{name.upper()}={value!r}: expected {expected}")


def _boolean(name: str, value: object) -> bool:
    text = str(value).strip().lower() if isinstance(value, (str, bool, int)) else ""
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise _bad(name, value, "true or false")


def _whole(name: str, value: object, low: int, high: int) -> int:
    number = int(value) if isinstance(value, str) and _DIGITS.fullmatch(value.strip()) else value
    if type(number) is int and low <= number <= high:
        return number
    raise _bad(name, value, f"a whole number from {low} to {high}")


def _one_of(name: str, value: object, valid: tuple[str, ...]) -> str:
    text = value.strip().lower() if isinstance(value, str) else ""
    if text in valid:
        return text
    raise _bad(name, value, f"one of {', '.join(valid)}")


def _text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise _bad(name, value, "a text")


def _store(name: str, value: object) -> str:
    url = value.strip() if isinstance(value, str) else ""
    if known_scheme(url):
        return url
    raise _bad(name, redacted(value), f"an address that begins with one of {', '.join(s + '://' for s in SCHEMES)}")


def _answer(name: str, value: object) -> None:
    if not callable(value) and not isinstance(value, str):
        raise _bad(name, value, "the dotted path of a function (decision, answer)")


def _path(name: str, value: object) -> str:
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if isinstance(path, str):
        return path
    raise _bad(name, value, "the path of a file")


def _policies(path: str) -> dict[str, Policy]:
    if not path:
        return {}
    try:
        from ratelimit.policy_file import load_policies  # TOML is read by few, and not for nothing

        return load_policies(path)
    except ConfigurationError as error:
        raise ConfigurationError(f"{PREFIX}POLICY_FILE: {error}") from None


def _prefix(name: str, value: object) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= 32 or not value.isascii() or not value.isprintable():
        raise _bad(name, value, "1 to 32 printable ASCII characters")
    if set(value) & set(" {}%~*?[]\\"):
        raise _bad(name, value, "no blanks and none of {}%~*?[]\\")


def _rate(name: str, value: object) -> Rate:
    if isinstance(value, Rate):
        return value
    try:
        return Rate.parse(value)  # type: ignore[arg-type]
    except ConfigurationError as error:
        raise ConfigurationError(f"{PREFIX}{name}={value!r}: {error}") from None


_warned: set[str] = set()
_watches: weakref.WeakSet[Watch] = weakref.WeakSet()
_source: Callable[[], Mapping[str, object]] | None = None
_overridden: dict[str, Any] = {}
_current: Settings | None = None
_edition = object()


def current() -> Settings:
    """The settings of this process, read on the first call. Raises `ConfigurationError` for a value that is not valid."""
    global _current
    settings = _current
    if settings is None:
        edition = _edition
        settings = _current = Settings.load(os.environ, _source() if _source else None, **_overridden)
        if edition is not _edition:  # another thread asked for a reload while this one was reading
            _current = None
    return settings


def reload() -> None:
    """Has the next check read the settings anew."""
    global _current, _edition
    _edition = object()
    _current = None
    for watch in list(_watches):
        watch.changed()


class Watch:
    """Has `changed` called at every change of the process's settings, as long as this is kept."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.changed = changed
        _watches.add(self)


def set_source(source: Callable[[], Mapping[str, object]] | None) -> None:
    """Takes the settings that the environment does not give from `source()`, a mapping of `RATELIMIT_…` names."""
    global _source
    _source = source
    reload()


# The override of a category that is added later holds too.
RateLimits.watch(reload)


@contextmanager
def override(**changes: Any) -> Iterator[Settings]:
    """The settings with `changes` (names without the prefix) on top until the block ends; no trace is left.

    `overrides` replaces the rates of the categories it names and leaves the others' as they are.
    """
    global _overridden
    before = _overridden
    rates = {**before.get("overrides", {}), **changes.get("overrides", {})}
    _overridden = {**before, **changes, "overrides": rates}
    reload()
    try:
        yield current()
    finally:
        _overridden = before
        reload()
