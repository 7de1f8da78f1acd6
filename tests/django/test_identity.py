from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from ratelimit import shapes
from ratelimit.settings import Settings
from ratelimit_django import arequest_identity, request_identity, view_ratelimit
from tests.django.calls import codes, get, ok

BEHIND_ONE = Settings(proxies_count=1)


def person(pk: int) -> Any:
    return SimpleNamespace(is_authenticated=True, pk=pk, is_superuser=False)


def without_peer(**meta: str) -> HttpRequest:
    request = get(**meta)
    del request.META["REMOTE_ADDR"]
    return request


@pytest.mark.parametrize(
    ("count", "forwarded", "ip"),
    [
        (0, "203.0.113.5", "127.0.0.1"),
        (1, "203.0.113.5", "203.0.113.5"),
        (1, "198.51.100.1, 203.0.113.5", "203.0.113.5"),
        (2, "198.51.100.1,203.0.113.5", "198.51.100.1"),
        (3, "198.51.100.1,203.0.113.5", "127.0.0.1"),
        (1, "203.0.113.5:4711", "203.0.113.5"),
        (1, "2001:db8:1:2:3::9", "2001:db8:1:2::"),
    ],
)
async def test_the_address_is_found_behind_the_trusted_proxies(count: int, forwarded: str, ip: str) -> None:
    request, settings = get(HTTP_X_FORWARDED_FOR=forwarded), Settings(proxies_count=count)
    assert request_identity(request, settings=settings).ip == ip
    assert (await arequest_identity(request, settings=settings)).ip == ip


@pytest.mark.parametrize("request_", [get(REMOTE_ADDR=""), without_peer()])
def test_a_connection_without_an_address_is_one_caller(request_: HttpRequest) -> None:
    request_.META["HTTP_X_FORWARDED_FOR"] = "203.0.113.5"
    assert request_identity(request_, settings=Settings()).key() == "ip:unknown"
    assert request_identity(request_, settings=BEHIND_ONE).key() == "ip:203.0.113.5"


@pytest.mark.usefixtures("limiter")
@pytest.mark.parametrize("request_", [get(REMOTE_ADDR=""), without_peer()])
def test_a_connection_without_an_address_is_limited(request_: HttpRequest) -> None:
    def one_more() -> HttpRequest:
        request_.META["HTTP_X_FORWARDED_FOR"] = f"203.0.113.{len(seen)}"
        seen.append(1)
        return request_

    seen: list[int] = []
    assert codes(view_ratelimit(rate="1/m")(ok), 2, one_more) == [200, 429]


async def test_without_users_everybody_is_anonymous() -> None:
    assert request_identity(get()).key() == "ip:127.0.0.1"
    assert (await arequest_identity(get())).key() == "ip:127.0.0.1"


async def test_a_user_that_was_set_is_the_caller() -> None:
    request = get()
    request.user = person(7)
    assert request_identity(request).key() == "user:7"
    assert (await arequest_identity(request)).key() == "user:7"
    assert request_identity(request, user=False).key() == "ip:127.0.0.1"
    assert (await arequest_identity(request, user=False)).key() == "ip:127.0.0.1"


async def test_async_code_loads_an_unread_user_by_auser() -> None:
    async def auser() -> Any:
        return person(8)

    request = get()
    request.user = SimpleLazyObject(lambda: 1 / 0)  # type: ignore[assignment]
    request.auser = auser  # type: ignore[assignment]
    assert (await arequest_identity(request)).key() == "user:8"


async def test_a_user_that_was_read_or_replaced_before_is_not_loaded_again() -> None:
    async def auser() -> Any:
        raise AssertionError("loaded")

    request = get()
    request.auser = auser  # type: ignore[assignment]
    lazy = SimpleLazyObject(lambda: person(9))
    assert lazy.is_authenticated
    for user in (lazy, person(9)):
        request.user = user  # type: ignore[assignment]
        assert (await arequest_identity(request)).key() == "user:9"


async def test_an_unread_user_without_auser_is_loaded_in_a_thread() -> None:
    def load() -> Any:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return person(10)

    request = get()
    request.user = SimpleLazyObject(load)  # type: ignore[assignment]
    assert (await arequest_identity(request)).key() == "user:10"


@pytest.mark.parametrize("looking", [True, False])
def test_the_token_is_the_one_that_the_application_accepted(monkeypatch: pytest.MonkeyPatch, looking: bool) -> None:
    monkeypatch.setattr(shapes, "looking", looking)
    request = get(HTTP_AUTHORIZATION="Bearer not-checked")
    assert request_identity(request).token is None
    request.limit_token = "checked"  # type: ignore[attr-defined]
    assert request_identity(request).token == "checked"


@pytest.mark.django_db
def test_djangos_users_have_their_tier() -> None:
    request = get()
    request.user = User.objects.create_superuser("root")
    identity = request_identity(request)
    assert (identity.user, identity.superuser, identity.capped) == (str(request.user.pk), True, False)
