"""Django's settings as a source of the engine's: under the environment, over the defaults.

Rules:
- Importing `ratelimit_django` is enough; nothing else has to be called.
- Where no `RATELIMIT_STORE` is given, the store is the cache that `RATELIMIT_USE_CACHE` names.
- A changed setting (`override_settings`, pytest-django's `settings`) takes effect at the next check.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.conf import settings
from django.core.signals import setting_changed

import ratelimit.settings
from ratelimit import ConfigurationError
from ratelimit.settings import Settings
from ratelimit.stores import open_store
from ratelimit_django.references import load

VIEW: Final = "RATELIMIT_VIEW"
_STORE: Final = "RATELIMIT_STORE"


def register() -> None:
    """Has the engine read Django's settings, now and whenever one changes."""
    ratelimit.settings.set_source(django_settings)
    setting_changed.connect(_changed, dispatch_uid="ratelimit_django.conf")


def django_settings() -> Mapping[str, object]:
    """The `RATELIMIT_…` settings of the project; empty when there are no Django settings at all."""
    if not settings.configured and not os.environ.get("DJANGO_SETTINGS_MODULE"):
        return {}
    found = {name: getattr(settings, name) for name in dir(settings) if name.startswith(ratelimit.settings.PREFIX)}
    return found if found.get(_STORE) else {**found, _STORE: "django://"}


def checked_settings() -> Settings:
    """The process's settings. Raises `ConfigurationError` that names variable and text for one that cannot be used,
    the store's URL included."""
    found = ratelimit.settings.current()
    try:
        open_store(found.store)
    except ConfigurationError as error:
        raise ConfigurationError(f"{_STORE}: {error}") from error
    return found


def denial_view() -> Callable[..., Any] | None:
    """What `RATELIMIT_VIEW` names: a function `(request, exception)`, sync or async, that answers denied requests.

    Raises `ConfigurationError` when it names nothing that can be called.
    """
    named = os.environ.get(VIEW) or getattr(settings, VIEW, None)
    if not named:
        return None
    if callable(named):
        return named  # type: ignore[no-any-return]
    if not isinstance(named, str):
        raise ConfigurationError(f"{VIEW}={named!r}: expected the dotted path of a function (request, exception)")
    return load(named, VIEW)


def _changed(*, setting: str, **_: object) -> None:
    if setting.startswith(ratelimit.settings.PREFIX):
        ratelimit.settings.reload()
