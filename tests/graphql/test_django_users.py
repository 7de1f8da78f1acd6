"""Django's lazy `request.user` under an event loop: looked up in a thread, once, and the one the application set."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.exceptions import SynchronousOnlyOperation
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, AsyncRequestFactory
from django.utils.functional import SimpleLazyObject

from ratelimit import Limiter, Rate
from ratelimit_graphql import graphql_ratelimit
from tests.graphql.callers import User, info

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("limiter")]

TEN = Rate.parse("10/m")


@graphql_ratelimit(rate=TEN)
async def resolve_items(root: Any, info: Any) -> bool:
    return info.context.user.is_authenticated  # type: ignore[no-any-return]


async def arrived(session: str) -> HttpRequest:
    """A request with that session's cookie, as Django's middleware leaves it: nothing looked up yet."""
    request = AsyncRequestFactory().post("/graphql")
    request.COOKIES["sessionid"] = session
    answer: Any = lambda request: HttpResponse()  # noqa: E731
    SessionMiddleware(answer).process_request(request)
    AuthenticationMiddleware(answer).process_request(request)
    return request


@pytest.fixture
async def session() -> str:
    """The session of a user that has logged in."""
    client = AsyncClient()
    await client.aforce_login(await get_user_model().objects.acreate_user("ada"))
    return client.cookies["sessionid"].value


async def test_it_is_looked_up_without_blocking_and_then_there_for_the_resolver(limiter: Limiter, session: str) -> None:
    request = await arrived(session)
    assert await resolve_items(None, info(request))
    assert limiter.peek(TEN, f"user:{request.user.pk}", group="graphql:Query.items").remaining == 9


async def test_it_is_looked_up_once_and_off_the_loop() -> None:
    looked_up: list[threading.Thread] = []

    def look_up() -> User:
        looked_up.append(threading.current_thread())
        return User(42)

    request = await arrived("none")
    request.user = SimpleLazyObject(look_up)
    for _ in range(5):
        await resolve_items(None, info(request))
    assert len(looked_up) == 1
    assert looked_up[0] is not threading.current_thread()


async def test_on_a_plain_resolver_django_refuses_rather_than_block_the_loop(session: str) -> None:
    resolved: list[int] = []
    limited = graphql_ratelimit(rate=TEN)(lambda root, info: resolved.append(1))
    with pytest.raises(SynchronousOnlyOperation):
        limited(None, info(await arrived(session)))
    assert resolved == []


async def test_an_anonymous_caller_counts_by_address(limiter: Limiter) -> None:
    request = await arrived("none")
    assert not await resolve_items(None, info(request))
    assert limiter.peek(TEN, "ip:127.0.0.1", group="graphql:Query.items").remaining == 9


@pytest.mark.parametrize("put", [lambda user: user, lambda user: SimpleLazyObject(lambda: user)])
async def test_a_user_that_other_middleware_put_there_is_the_one_that_counts(
    limiter: Limiter, session: str, put: Any
) -> None:
    request = await arrived(session)
    request.user = put(User(4711))
    await resolve_items(None, info(request))
    assert limiter.peek(TEN, "user:4711", group="graphql:Query.items").remaining == 9
