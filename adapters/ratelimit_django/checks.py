"""Django system checks: what can be known to be wrong before the first request.

| id | says |
|---|---|
| `ratelimit.E001` | a setting or variable has a value that cannot be used |
| `ratelimit.E002` | the store's cache is not in `CACHES`, or its backend cannot be imported |
| `ratelimit.E003` | the cache is Django's dummy: nothing is limited |
| `ratelimit.E004` | `RATELIMIT_VIEW`, or a dotted path given to `view_ratelimit`, leads nowhere |
| `ratelimit.W001` | a `RATELIMIT_…` name that nothing reads |
| `ratelimit.W002` | every process counts for itself |
| `ratelimit.W003` | the cache throws entries away when it holds more than a few |
| `ratelimit.W004` | the cache's increment is not atomic |
| `ratelimit.W005` | the trusted proxies do not fit the other settings, or are too many |
| `ratelimit.W006` | the cache's prefix leaves no room for keys |
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from django.conf import settings
from django.core.cache import BaseCache, caches
from django.core.cache.backends.base import memcache_key_warnings
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.filebased import FileBasedCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as Caution

import ratelimit.settings
from ratelimit import ConfigurationError
from ratelimit.settings import Settings
from ratelimit_django.caches import counts_atomically, runs_in_process, runs_on_a_database
from ratelimit_django.conf import checked_settings, denial_view, django_settings
from ratelimit_django.references import made

FEW_ENTRIES: Final = 10_000
MANY_PROXIES: Final = 5
PER_PROCESS: Final = "ratelimit.W002"
_RENAMED: Final = {
    "RATELIMIT_ENABLE": "RATELIMIT_DISABLE, which says the opposite",
    "RATELIMIT_CACHE_PREFIX": "RATELIMIT_KEY_PREFIX",
    "RATELIMIT_EXCEPTION_CLASS": "RATELIMIT_VIEW, which names a function (request, exception)",
    "RATELIMIT_IP_META_KEY": "RATELIMIT_PROXIES_COUNT or RATELIMIT_TRUSTED_PROXIES, with RATELIMIT_CLIENT_HEADER",
}
"""django-ratelimit's settings that have another name here."""


def check_settings(**_: Any) -> list[CheckMessage]:
    """The values of all settings and variables, the names that nothing reads, and the trusted proxies."""
    try:
        current = checked_settings()
    except ConfigurationError as error:
        return [*_unknown_names(), Error(str(error), id="ratelimit.E001")]
    return [*_unknown_names(), *_proxies(current)]


def check_limits(**_: Any) -> list[CheckMessage]:
    """What is given by its dotted path: `RATELIMIT_VIEW`, and the keys and rates of the views that are imported."""
    found: list[CheckMessage] = []
    for load in (denial_view, *(reference.target for reference in made())):
        try:
            load()
        except ConfigurationError as error:
            found.append(Error(str(error), id="ratelimit.E004"))
    return found


def check_caches(**_: Any) -> list[CheckMessage]:
    """Whether the store, if it is one of Django's caches, can count."""
    try:
        store = ratelimit.settings.current().store
    except ConfigurationError:
        return []  # check_settings tells
    if store.startswith("memory://"):
        return [_per_process(f"RATELIMIT_STORE={store!r}")]
    if not store.startswith("django://"):
        return []
    alias = store.removeprefix("django://")
    try:
        cache = caches.create_connection(alias)
    except Exception as error:
        text = f"the rate limits' cache {alias!r} cannot be used: {type(error).__name__}: {error}"
        hint = f"Name one of CACHES in RATELIMIT_USE_CACHE: {', '.join(sorted(caches.settings))}."
        return [Error(text, hint=hint, id="ratelimit.E002")]
    return list(_unsuitable(alias, cache))


def _unsuitable(alias: str, cache: BaseCache) -> Iterator[CheckMessage]:
    what = f"the rate limits' cache {alias!r} ({type(cache).__name__})"
    if isinstance(cache, DummyCache):
        hint = "Use another cache, or say so with RATELIMIT_DISABLE = True."
        yield Error(f"{what} keeps nothing: no limit ever holds", hint=hint, id="ratelimit.E003")
        return
    if runs_in_process(cache):
        yield _per_process(what)
    if not counts_atomically(cache):
        hint = "Use Redis or memcached."
        yield Caution(
            f"{what} cannot count atomically: several processes let too much pass", hint=hint, id="ratelimit.W004"
        )
    entries: int = getattr(cache, "_max_entries", FEW_ENTRIES)
    evicts = isinstance(cache, (LocMemCache, FileBasedCache)) or runs_on_a_database(cache)
    if evicts and entries < FEW_ENTRIES:
        text = f"{what} throws counters away when it holds more than {entries} entries, and with them what was counted"
        hint = f"Give the limits a cache of their own, with OPTIONS = {{'MAX_ENTRIES': {10 * FEW_ENTRIES}}}."
        yield Caution(text, hint=hint, id="ratelimit.W003")
    for problem in memcache_key_warnings(cache.make_key(f"rl~{64 * '0'}")):
        yield Caution(f"{what}: its KEY_PREFIX spoils every key: {problem}", id="ratelimit.W006")


def workers_in_sight() -> int:
    """How many worker processes `WEB_CONCURRENCY` speaks of, which hosts set and servers read; 0 if it says nothing."""
    workers = os.environ.get("WEB_CONCURRENCY", "")
    return int(workers) if workers.isascii() and workers.isdigit() else 0


def _per_process(what: str) -> CheckMessage:
    workers = workers_in_sight()
    times = f"the {workers} workers of WEB_CONCURRENCY" if workers > 1 else "workers and instances"
    text = f"{what} counts for each process alone: the real limit is the limit times {times}"
    hint = "Use a store that all processes share (Redis), unless there is only one."
    return Caution(text, hint=hint, id=PER_PROCESS)


def _unknown_names() -> Iterator[CheckMessage]:
    given: dict[str, str] = dict.fromkeys(django_settings(), "setting")
    given |= {name: "environment variable" for name in os.environ if name.startswith(ratelimit.settings.PREFIX)}
    for name, near in sorted(ratelimit.settings.unknown_names(given).items()):
        hint = f"Did you mean {_RENAMED.get(name, near)}?" if name in _RENAMED or near else None
        yield Caution(
            f"{given[name]} {name} is neither a setting nor a category: nothing reads it",
            hint=hint,
            id="ratelimit.W001",
        )


def _proxies(current: Settings) -> Iterator[CheckMessage]:
    count, networks = current.proxies_count, current.trusted_proxies
    behind = [name for name in ("SECURE_PROXY_SSL_HEADER", "USE_X_FORWARDED_HOST") if getattr(settings, name, None)]
    if not current.proxied and behind:
        text = f"{behind[0]} says that there is a proxy, RATELIMIT_PROXIES_COUNT is 0: all its clients count as one address"
        hint = (
            "Set RATELIMIT_PROXIES_COUNT to the number of proxies that add to X-Forwarded-For, or RATELIMIT_TRUSTED_PROXIES to "
            "their networks."
        )
        yield Caution(text, hint=hint, id="ratelimit.W005")
    if count > MANY_PROXIES:
        text = (
            f"RATELIMIT_PROXIES_COUNT={count}: with fewer proxies than that, clients choose the address they count as"
        )
        hint = f"Count the proxies that add to {current.client_header}."
        yield Caution(text, hint=hint, id="ratelimit.W005")
    for network in networks.wide:
        text = f"RATELIMIT_TRUSTED_PROXIES: everybody in {network} may choose the address they count as"
        yield Caution(text, hint="Name the networks of your proxies alone.", id="ratelimit.W005")
