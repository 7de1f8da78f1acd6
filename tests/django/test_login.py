"""Django's own login under protection: its signals count, its backend refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.test import Client

from ratelimit import Limiter
from ratelimit.login import LoginProtection
from ratelimit.testing import FakeClock
from ratelimit_django import login as module
from ratelimit_django.login import protect_logins

pytestmark = pytest.mark.django_db
BACKENDS = ["ratelimit_django.login.LoginProtectionBackend", "django.contrib.auth.backends.ModelBackend"]


@pytest.fixture(autouse=True)
def _protected(limiter: Limiter, settings: object) -> Iterator[None]:
    settings.AUTHENTICATION_BACKENDS = BACKENDS  # type: ignore[attr-defined]
    before = module._protection
    protect_logins(LoginProtection(failures=3, limiter=limiter))
    User.objects.create_user("ann", password="right")
    yield
    module._protection = before
    user_login_failed.disconnect(dispatch_uid="ratelimit_login_failed")
    user_logged_in.disconnect(dispatch_uid="ratelimit_logged_in")


def attempt(password: str, address: str = "203.0.113.7", account: str = "ann") -> bool:
    request = Client().request().wsgi_request
    request.META["REMOTE_ADDR"] = address
    from django.contrib.auth import authenticate, login

    user = authenticate(request, username=account, password=password)
    if user is not None:
        login(request, user)
    return user is not None


def test_after_three_failures_even_the_right_password_is_refused(fake_clock: FakeClock) -> None:
    assert [attempt("wrong") for _ in range(3)] == [False] * 3
    assert not attempt("right")
    assert attempt("right", address="198.51.100.9")
    fake_clock.advance(900)
    assert attempt("right")


def test_a_login_forgets_the_failures_of_its_pair() -> None:
    for _ in range(3):
        assert [attempt("wrong") for _ in range(2)] == [False, False]
        assert attempt("right")


def test_refused_attempts_do_not_prolong_the_ban(fake_clock: FakeClock) -> None:
    assert [attempt("wrong") for _ in range(3)] == [False] * 3
    for _ in range(8):
        fake_clock.advance(100)
        assert not attempt("right")
    fake_clock.advance(100)
    assert attempt("right")


def test_an_attempt_without_a_request_is_not_counted() -> None:
    from django.contrib.auth import authenticate

    assert [authenticate(username="ann", password="wrong") for _ in range(9)] == [None] * 9
    assert authenticate(username="ann", password="right") is not None
