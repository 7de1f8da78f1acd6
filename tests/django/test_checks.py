"""Every system check, and the silence of a sound configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.core.checks import run_checks
from django.http import HttpRequest
from django.test import override_settings

import ratelimit_django.checks
import ratelimit_django.path_checks
from ratelimit_django import view_ratelimit
from ratelimit_django.checks import check_caches
from tests.django.calls import ok

LOCAL = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 100_000}}
REDIS = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}
FILES = settings.CACHES["files"]
TABLE = {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "counts"}
DUMMY = {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}


def found(**given: Any) -> dict[str, str]:
    """The ids of this package's messages, each with its text and hint."""
    with override_settings(**{"CACHES": {"default": REDIS}, **given}):
        messages = run_checks()
    return {
        message.id: f"{message.msg} | {message.hint}"
        for message in messages
        if str(message.id).startswith("ratelimit.")
    }


def test_a_sound_configuration_is_silent() -> None:
    assert found() == {}
    assert found(RATELIMIT_STORE="redis://127.0.0.1:1/0", CACHES={"default": DUMMY}) == {}
    assert found(RATELIMIT_PROXIES_COUNT=1, SECURE_PROXY_SSL_HEADER=("X-Forwarded-Proto", "https")) == {}
    assert found(RATELIMIT_TRUSTED_PROXIES=["10.0.0.0/8", "unix"], USE_X_FORWARDED_HOST=True) == {}


@pytest.mark.parametrize(
    ("given", "id_", "said"),
    [
        ({"RATELIMIT_AI_QUERY": "20/mm"}, "E001", "RATELIMIT_AI_QUERY='20/mm'"),
        ({"RATELIMIT_STORE": "mongo://"}, "E001", "RATELIMIT_STORE='mongo://'"),
        (
            {"RATELIMIT_USE_CACHE": "limits"},
            "E002",
            "'limits' cannot be used.*Name one of CACHES in RATELIMIT_USE_CACHE: default",
        ),
        ({"CACHES": {"default": DUMMY}}, "E003", r"'default' \(DummyCache\) keeps nothing: no limit ever holds"),
        ({"RATELIMIT_VIEW": "shop.limits.answer"}, "E004", "RATELIMIT_VIEW='shop.limits.answer' cannot be imported"),
        ({"RATELIMIT_VIEW": "math.pi"}, "E004", "RATELIMIT_VIEW='math.pi' is not callable"),
        ({"RATELIMIT_VIEW": 7}, "E004", "RATELIMIT_VIEW=7: expected the dotted path"),
        ({"RATELIMIT_PROXY_COUNT": 1}, "W001", "setting RATELIMIT_PROXY_COUNT.*Did you mean RATELIMIT_PROXIES_COUNT"),
        (
            {"RATELIMIT_ENABLE": False},
            "W001",
            "RATELIMIT_ENABLE.*Did you mean RATELIMIT_DISABLE, which says the opposite",
        ),
        ({"RATELIMIT_XYZZY": 1}, "W001", r"RATELIMIT_XYZZY is neither a setting nor a category.*\| None"),
        (
            {"CACHES": {"default": LOCAL}},
            "W002",
            "counts for each process alone: the real limit is the limit times workers",
        ),
        ({"RATELIMIT_STORE": "memory://"}, "W002", "RATELIMIT_STORE='memory://' counts for each process alone"),
        ({"CACHES": {"default": {**LOCAL, "OPTIONS": {}}}}, "W003", "more than 300 entries"),
        ({"CACHES": {"default": FILES}}, "W003", "more than 300 entries"),
        ({"CACHES": {"default": TABLE}}, "W003", "more than 300 entries"),
        ({"CACHES": {"default": FILES}}, "W004", r"\(FileBasedCache\) cannot count atomically"),
        ({"CACHES": {"default": TABLE}}, "W004", r"\(DatabaseCache\) cannot count atomically"),
        (
            {"USE_X_FORWARDED_HOST": True},
            "W005",
            "USE_X_FORWARDED_HOST says that there is a proxy.*count as one address",
        ),
        ({"SECURE_PROXY_SSL_HEADER": ("X", "y")}, "W005", "SECURE_PROXY_SSL_HEADER says that there is a proxy"),
        ({"RATELIMIT_PROXIES_COUNT": 6}, "W005", "clients choose the address they count as"),
        (
            {"RATELIMIT_PROXIES_COUNT": 6, "RATELIMIT_CLIENT_HEADER": "Forwarded"},
            "W005",
            "Count the proxies that add to Forwarded",
        ),
        ({"RATELIMIT_TRUSTED_PROXIES": ["8.0.0.0/6"]}, "W005", "everybody in 8.0.0.0/6 may choose the address"),
        (
            {"RATELIMIT_TRUSTED_PROXIES": "10.0.0.1/8"},
            "E001",
            "RATELIMIT_TRUSTED_PROXIES: '10.0.0.1/8' is not a network",
        ),
        (
            {"RATELIMIT_TRUSTED_PROXIES": "::1", "RATELIMIT_PROXIES_COUNT": 1},
            "E001",
            "RATELIMIT_PROXIES_COUNT=1 and RATELIMIT_TRUSTED_PROXIES=::1 .*choose one",
        ),
        (
            {"RATELIMIT_CLIENT_HEADER": "X-Real-IP"},
            "E001",
            "RATELIMIT_CLIENT_HEADER='X-Real-IP' without a trusted proxy",
        ),
        (
            {"RATELIMIT_IP_META_KEY": "HTTP_X_REAL_IP"},
            "W001",
            "Did you mean RATELIMIT_PROXIES_COUNT or RATELIMIT_TRUSTED",
        ),
        (
            {"CACHES": {"default": {**REDIS, "KEY_PREFIX": "p" * 200}}},
            "W006",
            "KEY_PREFIX spoils every key: .*longer than 250",
        ),
        ({"CACHES": {"default": {**REDIS, "KEY_PREFIX": "my shop"}}}, "W006", "KEY_PREFIX spoils every key"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], id_: str, said: str) -> None:
    messages = found(**given)
    assert re.search(said, messages[f"ratelimit.{id_}"]), messages


def test_a_backend_that_cannot_be_imported_is_named() -> None:
    with override_settings(CACHES={"default": {"BACKEND": "no.such.Cache"}}):
        (message,) = check_caches()
    assert message.id == "ratelimit.E002"
    assert "'default' cannot be used: InvalidCacheBackendError" in message.msg


def test_every_bad_thing_is_said_once_and_alone() -> None:
    assert list(found(RATELIMIT_AI_QUERY="20/mm")) == ["ratelimit.E001"]
    assert list(found(CACHES={"default": DUMMY})) == ["ratelimit.E003"]
    assert sorted(found(CACHES={"default": TABLE})) == ["ratelimit.W003", "ratelimit.W004"]
    assert list(found(CACHES={"default": {**TABLE, "OPTIONS": {"MAX_ENTRIES": 50_000}}})) == ["ratelimit.W004"]


def test_a_misspelt_variable_is_called_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATELIMIT_AI_QUERRY", "5/m")
    assert found()["ratelimit.W001"] == (
        "environment variable RATELIMIT_AI_QUERRY is neither a setting nor a category: nothing reads it"
        " | Did you mean RATELIMIT_AI_QUERY?"
    )


def test_several_workers_are_counted_when_they_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    assert "times the 4 workers of WEB_CONCURRENCY" in found(CACHES={"default": LOCAL})["ratelimit.W002"]
    monkeypatch.setenv("WEB_CONCURRENCY", "1")
    assert "times workers and instances" in found(CACHES={"default": LOCAL})["ratelimit.W002"]


def test_a_server_with_several_workers_is_told_in_its_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = apps.get_app_config("ratelimit_django").ready
    start()
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    with override_settings(CACHES={"default": REDIS}):
        start()
    assert caplog.messages == []
    start()
    (line,) = caplog.messages
    assert "times the 4 workers of WEB_CONCURRENCY. Use a store that all processes share" in line


@pytest.mark.parametrize("options", [{"key": "no.such.tenant", "rate": "1/m"}, {"rate": "no.such.tenant"}])
def test_a_dotted_path_that_leads_nowhere_is_found_before_the_first_request(options: dict[str, str]) -> None:
    view = view_ratelimit(**options)(ok)  # type: ignore[arg-type]
    name = "key" if "key" in options else "rate"
    assert f"{name}='no.such.tenant' cannot be imported" in found()["ratelimit.E004"]
    del view
    assert found() == {}


def test_a_dotted_path_that_leads_somewhere_is_no_message() -> None:
    view = view_ratelimit(rate=f"{__name__}.rate")(ok)
    assert found() == {}
    assert callable(view)


def rate(group: str, request: HttpRequest) -> str:
    return "1/m"


def test_the_documentation_lists_every_check() -> None:
    page = (Path(__file__).parents[2] / "docs" / "django.md").read_text()
    every = set()
    for module in (ratelimit_django.checks, ratelimit_django.path_checks):
        listed = set(re.findall(r"`(ratelimit\.[EW]\d{3})`", module.__doc__ or ""))
        assert set(re.findall(r'"(ratelimit\.[EW]\d{3})"', Path(module.__file__).read_text())) == listed
        every |= listed
    assert set(re.findall(r"`(ratelimit\.[EW]\d{3})`", page)) == every
