"""Django's authentication under login protection: refused before the password is looked at, counted by its signals."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from ratelimit import Identity, StoreError
from ratelimit.login import LoginProtection
from ratelimit_django.identity import request_identity
from ratelimit_django.noted import note

logger = logging.getLogger("ratelimit.django")

_protection = LoginProtection()


def protect_logins(protection: LoginProtection | None = None) -> LoginProtection:
    """Counts failed logins and clears after successful ones, by Django's own signals. Call it in `AppConfig.ready`.

    Put `"ratelimit_django.login.LoginProtectionBackend"` first in `AUTHENTICATION_BACKENDS`, which refuses attempts.
    A login that is attempted without a request cannot be told by address, and is not counted.
    """
    global _protection
    if protection is not None:
        _protection = protection
    user_login_failed.connect(_failed, dispatch_uid="ratelimit_login_failed")
    user_logged_in.connect(_succeeded, dispatch_uid="ratelimit_logged_in")
    return _protection


class LoginProtectionBackend:
    """Refuses an attempt that is banned, before any other backend sees the password; authenticates nobody itself."""

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> None:
        """Raises `PermissionDenied`, which ends the attempt, while a ban holds."""
        account = _account(credentials)
        if request is None or account is None:
            return
        decision = _protection.check(account, _caller(request))
        note(request, decision)
        if not decision.allowed:
            raise PermissionDenied("too many failed logins")

    def get_user(self, user_id: Any) -> None:
        """No user comes from here."""


def _failed(sender: Any, credentials: Mapping[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    account = _account(credentials)
    if request is not None and account is not None:
        _protection.failed(account, _caller(request))


def _succeeded(sender: Any, request: HttpRequest | None, user: Any, **_: Any) -> None:
    if request is None:
        return
    try:
        _protection.succeeded(user.get_username(), _caller(request))
    except StoreError as error:
        # The login itself is good: an old count that stays is no reason to refuse it.
        logger.warning("failed logins could not be cleared: %s", error)


def _caller(request: HttpRequest) -> Identity:
    return request_identity(request, settings=_protection.limiter.settings, user=False)


def _account(credentials: Mapping[str, Any]) -> str | None:
    found: object = credentials.get("username") or credentials.get(_user_name_field())
    return found if isinstance(found, str) else None


def _user_name_field() -> str:
    model: Any = get_user_model()
    return str(model.USERNAME_FIELD)
