"""Django's settings for the whole suite: as little as sessions, users and the adapters' tests need."""

from __future__ import annotations

import atexit
import tempfile
from importlib.util import find_spec

_folder = tempfile.TemporaryDirectory(prefix="rl-django-")
atexit.register(_folder.cleanup)

SECRET_KEY = "not a secret"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "tests.django.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "ratelimit_django",
]
if find_spec("channels"):
    INSTALLED_APPS.append("channels")

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]

# The tests' database is a file, for threads can share it, and its connections can be closed. Nothing on it lasts.
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": ":memory:",
        "OPTIONS": {"init_command": "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY"},
        "TEST": {"NAME": f"{_folder.name}/tests.sqlite3"},
    }
}

_LOCAL = "django.core.cache.backends.locmem.LocMemCache"
CACHES = {
    "default": {"BACKEND": _LOCAL, "LOCATION": "default", "OPTIONS": {"MAX_ENTRIES": 1_000_000}},
    # What is left of Django's own defaults: 300 entries, then a third of them goes.
    "small": {"BACKEND": _LOCAL, "LOCATION": "small"},
    "nothing": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
    "files": {
        "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
        "LOCATION": f"{_folder.name}/cache",
    },
    "table": {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "rate_limit_counts"},
}
