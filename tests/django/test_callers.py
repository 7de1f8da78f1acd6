"""Who is counted: the forms of `key=`."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import caches
from django.http import HttpRequest
from django.test import RequestFactory, override_settings
from django.utils.functional import SimpleLazyObject

from ratelimit import Identity, Limiter
from ratelimit_django import view_ratelimit
from tests.django.calls import acodes, codes, get, ok

pytestmark = pytest.mark.usefixtures("cache_limiter")
PERSON = SimpleNamespace(is_authenticated=True, pk=42)


def callers() -> list[str]:
    """The callers that were counted so far, as they stand in the keys."""
    keys = caches["default"]._cache  # type: ignore[attr-defined]
    return sorted(key.partition("{")[2].partition("}")[0] for key in keys)


def caller(key: Any, request: HttpRequest) -> str:
    """The one caller that a limit by `key` counts for `request`."""
    caches["default"].clear()
    view_ratelimit(key=key, rate="9/m")(ok)(request)
    (found,) = callers()
    return found


def post(values: dict[str, str]) -> HttpRequest:
    return RequestFactory().post("/", values)


def by_tenant(group: str, request: HttpRequest) -> str:
    return f"tenant-{request.GET['t']}"


@pytest.mark.parametrize(
    ("key", "anonymous", "user"),
    [
        (None, "ip:127.0.0.1", "user:42"),
        ("user_or_ip", "ip:127.0.0.1", "user:42"),
        ("user", "ip:127.0.0.1", "user:42"),
        ("ip", "ip:127.0.0.1", "ip:127.0.0.1"),
        ("global", "global", "global"),
    ],
)
def test_strategies(key: str | None, anonymous: str, user: str) -> None:
    request = get()
    assert caller(key, request) == anonymous
    request.user = PERSON  # type: ignore[assignment]
    assert caller(key, request) == user


def test_a_token_that_the_application_accepted() -> None:
    request = get()
    assert caller("token_or_ip", request) == "ip:127.0.0.1"
    request.limit_token = "s3cret"  # type: ignore[attr-defined]
    found = caller("token_or_ip", request)
    assert found.startswith("tok:")
    assert "s3cret" not in found


@pytest.mark.parametrize("key", [by_tenant, f"{__name__}.by_tenant"])
async def test_a_callable_or_its_path_is_asked_with_group_and_request(key: Any) -> None:
    async def aview(request: HttpRequest) -> Any:
        return ok(request)

    assert caller(key, get("/?t=1")) == "key:tenant-1"
    view = view_ratelimit(key=key, rate="1/m")(ok)
    assert [codes(view, 2, lambda: get("/?t=4")), codes(view, 2, lambda: get("/?t=2"))] == [[200, 429]] * 2
    assert await acodes(view_ratelimit(key=key, rate="1/m")(aview), 2, lambda: get("/?t=3")) == [200, 429]


def test_a_callable_may_give_an_identity() -> None:
    assert caller(lambda group, request: Identity(user="7"), get()) == "user:7"


@pytest.mark.parametrize(
    ("key", "request_with", "secret"),
    [
        ("header:x-api-key", lambda value: get(HTTP_X_API_KEY=value), "hunter2"),
        ("header:Authorization", lambda value: get(HTTP_AUTHORIZATION=value), "Bearer abc"),
        ("get:email", lambda value: get(f"/?email={value}"), "a@example.org"),
        ("post:username", lambda value: post({"username": value}), "alice"),
    ],
)
def test_a_value_of_the_request_tells_callers_apart_and_is_never_in_a_key(
    key: str, request_with: Callable[[str], HttpRequest], secret: str
) -> None:
    view = view_ratelimit(key=key, rate="1/m")(ok)
    assert codes(view, 2, lambda: request_with(secret)) == [200, 429]
    assert codes(view, 2, lambda: request_with("other")) == [200, 429]
    found = callers()
    assert len(found) == 2
    source, _, name = key.partition(":")
    assert all(one.startswith(f"{source}:{name.lower()}:") and len(one.split(":")[2]) == 32 for one in found)
    assert not any(secret in one or "other" in one for one in found)


def test_what_stands_for_a_value_depends_on_the_secret_key_and_the_source() -> None:
    first = caller("post:code", post({"code": "1234"})).split(":")[2]
    assert caller("get:code", get("/?code=1234")).split(":")[2] != first
    with override_settings(SECRET_KEY="another"):
        assert caller("post:code", post({"code": "1234"})).split(":")[2] != first


@pytest.mark.parametrize("key", ["header:x-api-key", "get:email", "post:username"])
@pytest.mark.parametrize(
    "request_without", [get, lambda: get("/?email=", HTTP_X_API_KEY=""), lambda: post({"username": ""})]
)
def test_a_request_without_the_value_counts_by_its_address_and_apart_from_limits_by_address(
    key: str, request_without: Callable[[], HttpRequest]
) -> None:
    by_value = view_ratelimit(key=key, rate="1/m", group="login")(ok)
    by_address = view_ratelimit(key="ip", rate="1/m", group="login")(ok)
    assert codes(by_value, 2, request_without) == [200, 429]
    assert codes(by_address, 2, request_without) == [200, 429]
    assert callers() == [f"{key}:ip:127.0.0.1", "ip:127.0.0.1"] or callers() == ["ip:127.0.0.1", f"{key}:ip:127.0.0.1"]


def test_the_spelling_of_a_headers_name_does_not_matter() -> None:
    keys = ("header:X-API-Key", "header:x-api-key")
    assert len({caller(key, get(HTTP_X_API_KEY="a")) for key in keys}) == 1


def unread() -> Any:
    raise AssertionError("nobody needs the user")


@pytest.mark.parametrize("key", ["ip", "global", "token_or_ip", "header:x-api-key", lambda group, request: "k"])
def test_the_user_is_not_loaded_for_a_limit_that_does_not_need_it(key: Any) -> None:
    request = get()
    request.user = SimpleLazyObject(unread)  # type: ignore[assignment]
    assert view_ratelimit(key=key, rate="9/m")(ok)(request).status_code == 200


@pytest.mark.parametrize(
    "options", [{"rate": "WRITE_HEAVY"}, {"rule": "WRITE_HEAVY"}, {"rate": lambda group, request: "WRITE_HEAVY"}]
)
def test_the_user_is_loaded_where_its_tier_decides_on_the_rate(options: dict[str, Any], cache_limiter: Limiter) -> None:
    def request() -> HttpRequest:
        made = get()
        made.user = SimpleLazyObject(lambda: PERSON)  # type: ignore[assignment]
        return made

    assert codes(view_ratelimit(key="ip", **options)(ok), 11, request).count(200) == 10


@pytest.mark.parametrize(
    ("rate", "passes"),
    [
        ("2/m", 2),
        ((2, 60), 2),
        (f"{__name__}.dynamic", 3),
        (lambda group, request: (3, 60), 3),
        (lambda group, request: "WRITE_HEAVY", 5),
        (lambda group, request: "0/m", 0),
    ],
)
def test_forms_of_rates(rate: Any, passes: int) -> None:
    assert codes(view_ratelimit(key="ip", rate=rate)(ok), 6).count(200) == passes


def dynamic(group: str, request: HttpRequest) -> str:
    return "3/m"
