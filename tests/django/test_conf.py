"""Django's settings as the engine's."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from django.conf import settings as project
from django.test import override_settings

import ratelimit.settings
from ratelimit import ConfigurationError, MemoryStore, RateLimits, get_limiter
from ratelimit_django import view_ratelimit
from ratelimit_django.store import DjangoCacheStore
from tests.django.calls import codes, get, ok


def test_djangos_settings_hold_where_the_environment_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(
        RATELIMIT_PROXIES_COUNT=2, RATELIMIT_HEADERS="x", RATELIMIT_AI_QUERY="7/m", RATELIMIT_KEY_PREFIX=" "
    ):
        found = ratelimit.settings.current()
        assert (found.proxies_count, found.headers, found.key_prefix) == (2, "x", "rl")
        assert found.rate(RateLimits.AI_QUERY).limit == 7
        monkeypatch.setenv("RATELIMIT_AI_QUERY", "8/m")
        monkeypatch.setenv("RATELIMIT_HEADERS", " ")
        ratelimit.settings.reload()
        found = ratelimit.settings.current()
        assert (found.proxies_count, found.headers, found.rate(RateLimits.AI_QUERY).limit) == (2, "x", 8)


@pytest.mark.parametrize(
    ("given", "environment", "store"),
    [
        ({}, {}, "django://default"),
        ({"RATELIMIT_USE_CACHE": "files"}, {}, "django://files"),
        ({"RATELIMIT_USE_CACHE": "files"}, {"RATELIMIT_USE_CACHE": "small"}, "django://small"),
        ({"RATELIMIT_STORE": "memory://"}, {}, "memory://"),
        ({"RATELIMIT_STORE": ""}, {}, "django://default"),
        ({"RATELIMIT_STORE": None}, {}, "django://default"),
        ({"RATELIMIT_STORE": "memory://"}, {"RATELIMIT_STORE": "django://small"}, "django://small"),
    ],
)
def test_the_store_is_a_cache_unless_another_is_named(
    given: dict[str, Any], environment: dict[str, str], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with override_settings(**given):
        ratelimit.settings.reload()
        assert ratelimit.settings.current().store == store
    monkeypatch.undo()
    ratelimit.settings.reload()


def test_an_override_holds_at_once_and_leaves_no_trace() -> None:
    view = view_ratelimit(rate="AI_QUERY", group="frozen")(ok)
    with override_settings(RATELIMIT_AI_QUERY="100/h"):
        assert codes(view, 1) == [200]
        with override_settings(RATELIMIT_AI_QUERY="2/h"):
            assert codes(view, 2) == [200, 429]
        assert codes(view, 1) == [200]
        with override_settings(RATELIMIT_DISABLE=True):
            assert codes(view, 200) == [200] * 200
        assert view(get()).status_code == 200


def test_a_store_chosen_for_a_test_is_used_at_once_and_the_former_one_afterwards() -> None:
    with override_settings(RATELIMIT_STORE="memory://"):
        assert isinstance(get_limiter().store, MemoryStore)
    store = get_limiter().store
    assert isinstance(store, DjangoCacheStore)
    assert store.alias == "default"
    with override_settings(RATELIMIT_USE_CACHE="small"):
        store = get_limiter().store
        assert isinstance(store, DjangoCacheStore)
        assert store.alias == "small"


def test_other_settings_do_not_have_them_read_anew() -> None:
    before = ratelimit.settings.current()
    with override_settings(LANGUAGE_CODE="de"):
        assert ratelimit.settings.current() is before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"RATELIMIT_AI_QUERY": "20 per minute"}, "RATELIMIT_AI_QUERY='20 per minute'"),
        ({"RATELIMIT_PROXIES_COUNT": -1}, "RATELIMIT_PROXIES_COUNT=-1"),
        ({"RATELIMIT_FAIL_OPEN": "maybe"}, "RATELIMIT_FAIL_OPEN='maybe'"),
        ({"RATELIMIT_STORE": "reddis://x"}, "RATELIMIT_STORE='reddis://x'"),
        ({"RATELIMIT_STORE": "django://a/b"}, "RATELIMIT_STORE: store 'django://a/b'"),
    ],
)
def test_django_does_not_start_with_a_value_that_cannot_be_used(given: dict[str, Any], said: str) -> None:
    from django.apps import apps

    with override_settings(**given), pytest.raises(ConfigurationError) as caught:
        apps.get_app_config("ratelimit_django").ready()
    assert said in str(caught.value)


def run(program: str, **environment: str) -> str:
    """What `program` prints in a Python of its own."""
    path = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", program], env={**path, **environment}, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_importing_the_decorator_is_enough() -> None:
    program = """
from django.conf import settings
settings.configure(SECRET_KEY="x", RATELIMIT_AI_QUERY="1/h", ALLOWED_HOSTS=["*"])
import django; django.setup()
from ratelimit_django import view_ratelimit
from django.http import HttpResponse
from django.test import RequestFactory
view = view_ratelimit("AI_QUERY")(lambda request: HttpResponse())
print([view(RequestFactory().get("/")).status_code for _ in range(2)])
"""
    assert "[200, 429]" in run(program)


def test_a_bad_variable_ends_the_start_with_its_name_and_text() -> None:
    program = "import django; django.setup()"
    said = run(program, DJANGO_SETTINGS_MODULE="tests.settings", RATELIMIT_AUTH_LOGIN="5/mm")
    assert "ConfigurationError: RATELIMIT_AUTH_LOGIN='5/mm'" in said
    assert run(program, DJANGO_SETTINGS_MODULE="tests.settings") == ""


def test_without_django_settings_the_engine_has_its_own() -> None:
    program = "import ratelimit_django, ratelimit.settings; print(ratelimit.settings.current().store)"
    assert run(program) == "memory://\n"
    assert run(program, DJANGO_SETTINGS_MODULE="tests.settings") == "django://default\n"


def test_nothing_is_left_of_all_this() -> None:
    assert not [name for name in dir(project) if name.startswith("RATELIMIT_")]
    assert ratelimit.settings.current() == ratelimit.settings.Settings(store="django://default")
