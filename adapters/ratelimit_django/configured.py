"""The path rules of the project's settings under a name that can be imported: `ratelimit_django.configured.PATHS`."""

from __future__ import annotations

from ratelimit.paths import PathRules
from ratelimit_django.paths import path_limits


def __getattr__(name: str) -> PathRules:
    if name == "PATHS":
        return path_limits().rules
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
