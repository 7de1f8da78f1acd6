"""Whole requests: through Django's ASGI and WSGI handlers, and its test clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.test.utils import CaptureQueriesContext

from ratelimit import Limiter
from ratelimit.testing import FakeClock, isolated
from ratelimit_django.store import DjangoCacheStore

Answer = tuple[int, bytes, dict[str, str]]
VIEWS = ("plain", "coroutine", "Plain", "Coroutine", "PlainGet", "CoroutineGet")

# Django's handlers look at the database connection before and after each request.
pytestmark = [pytest.mark.usefixtures("cache_limiter", "_closed_threads"), pytest.mark.django_db]


def over_wsgi(path: str, address: str | None = "203.0.113.7") -> Answer:
    environ: dict[str, Any] = {"PATH_INFO": f"/{path}"}
    if address is not None:
        environ["REMOTE_ADDR"] = address
    setup_testing_defaults(environ)
    started: list[Any] = []
    body = b"".join(get_wsgi_application()(environ, lambda status, headers: started.extend((status, headers))))
    return int(started[0][:3]), body, dict(started[1])


async def _over_asgi(path: str, address: str | None) -> Answer:
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": f"/{path}",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": address and (address, 4711),
    }
    application = ApplicationCommunicator(get_asgi_application(), scope)
    await application.send_input({"type": "http.request", "body": b"", "more_body": False})
    start, body = await application.receive_output(5), await application.receive_output(5)
    await application.wait()
    return start["status"], body["body"], {name.decode(): value.decode() for name, value in start["headers"]}


def over_asgi(path: str, address: str | None = "203.0.113.7") -> Answer:
    return asyncio.run(_over_asgi(path, address))


@pytest.fixture(params=[over_wsgi, over_asgi])
def fetch(request: pytest.FixtureRequest) -> Callable[..., Answer]:
    """A request through one of the two handlers."""
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", VIEWS)
def test_every_kind_of_view_under_both_handlers(fetch: Callable[..., Answer], path: str) -> None:
    answers = [fetch(path) for _ in range(3)]
    assert [(status, body) for status, body, _ in answers[:2]] == [(200, path.encode())] * 2
    status, body, headers = answers[2]
    assert status == 429
    assert b'"code":"RATE_LIMITED"' in body
    assert headers["Retry-After"] == "60"
    assert fetch(path, "203.0.113.8")[0] == 200


def answer(request: HttpRequest, exception: Any) -> HttpResponse:
    return HttpResponse(f"own: {exception.decision.limit}", status=429)


async def aanswer(request: HttpRequest, exception: Any) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse(f"own: {exception.decision.limit}", status=429)


@pytest.mark.parametrize("name", ["answer", "aanswer"])
@pytest.mark.parametrize("path", VIEWS)
def test_an_answer_of_the_applications_own_sync_or_async(fetch: Callable[..., Answer], path: str, name: str) -> None:
    with override_settings(RATELIMIT_VIEW=f"{__name__}.{name}"):
        answers = [fetch(path) for _ in range(3)]
    assert [status for status, *_ in answers] == [200, 200, 429]
    assert answers[2][1] == b"own: 2"


def test_a_connection_without_an_address_is_limited(fetch: Callable[..., Answer]) -> None:
    assert [fetch("plain", None)[0] for _ in range(3)] == [200, 200, 429]
    assert [fetch("coroutine", "")[0] for _ in range(3)] == [200, 200, 429]


async def test_two_hundred_requests_at_once() -> None:
    client = AsyncClient()
    answers = await asyncio.gather(*(client.get("/wide") for _ in range(200)))
    assert sorted(answer.status_code for answer in answers) == [200] * 50 + [429] * 150


async def test_two_hundred_requests_at_once_on_redis(redis_url: str) -> None:
    backend = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url}
    with override_settings(CACHES={"default": backend}), isolated(DjangoCacheStore(), FakeClock()):
        client = AsyncClient()
        answers = await asyncio.gather(*(client.get("/wide") for _ in range(200)))
        assert sorted(answer.status_code for answer in answers) == [200] * 50 + [429] * 150


def test_users_of_djangos_sessions_are_the_caller(client: Client, cache_limiter: Limiter) -> None:
    assert [client.get("/plain").status_code for _ in range(3)] == [200, 200, 429]
    user = User.objects.create_user("ann")
    client.force_login(user)
    assert [client.get("/plain").status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.django_db(transaction=True)
async def test_users_of_djangos_sessions_are_the_caller_of_async_views(async_client: AsyncClient) -> None:
    user = await User.objects.acreate_user("ann")
    await async_client.aforce_login(user)
    statuses = [(await async_client.get("/category")).status_code for _ in range(11)]
    assert statuses == [200] * 10 + [429]  # twice the category's rate
    await async_client.alogout()
    assert (await async_client.get("/category")).status_code == 200


async def test_a_view_that_is_told_only_goes_on(async_client: AsyncClient) -> None:
    assert [(await async_client.get("/told")).content for _ in range(2)] == [b"limited: False", b"limited: True"]


def test_a_limit_by_address_reads_neither_session_nor_user(client: Client) -> None:
    from django.db import connection

    client.force_login(User.objects.create_user("ann"))
    with CaptureQueriesContext(connection) as queries:
        response = client.get("/public")
    assert (response.status_code, len(queries)) == (200, 0)
    assert "Vary" not in response.headers


def test_denials_are_logged_once_with_nothing_secret(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        client.get("/plain", headers={"authorization": "Bearer s3cret"})
    (line,) = [record.getMessage() for record in caplog.records if record.name == "ratelimit"]
    assert line == "rate limit exceeded: rule=tests.django.urls.plain key=ip:127.0.0.1 rate=2/m protocol=http"
