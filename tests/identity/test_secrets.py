"""A token that the application accepted is counted by its hash in every adapter, and shown in nothing they leave behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from ratelimit import Limiter, Rate, get_limiter
from ratelimit.asgi import scope_identity
from ratelimit.explain import explain
from ratelimit.identity import Identity, hashed
from ratelimit.testing import isolated
from ratelimit_django import request_identity, view_ratelimit

SECRET = "sk-live-0123456789abcdef"
OTHER = "sk-live-another"
UNCHECKED = [(b"authorization", b"Bearer sk-live-unchecked"), (b"x-api-key", b"sk-live-unchecked")]
ONE = Rate.parse("1/m")
Answer = tuple[bool, str]
"""Whether the call passed, and all that it left: what was sent, and how the caller looks in text."""


def django_view(token: str) -> Answer:
    @view_ratelimit(rate=ONE, key="token_or_ip", group="one")
    def view(request: Any) -> HttpResponse:
        return HttpResponse("ok")

    request: Any = RequestFactory().get("/", headers={"authorization": "Bearer sk-live-unchecked"})
    request.limit_token = token
    response = view(request)
    left = [response.content, response.headers, request.limit_decision, request.limit_key, request_identity(request)]
    return response.status_code == 200, repr(left)


def asgi(token: str) -> Answer:
    async def call() -> Answer:
        scope = {"type": "http", "headers": UNCHECKED, "client": ("203.0.113.7", 1), "limit_token": token}
        limiter = get_limiter()
        identity = scope_identity(scope, limiter.settings)
        decision = await limiter.acheck(ONE, identity, key="token_or_ip", group="one", protocol="http")
        return decision.allowed, repr([identity, decision, decision.headers("ietf"), decision.parts])

    return asyncio.run(call())


def graphql(token: str) -> Answer:
    pytest.importorskip("graphql")
    from ratelimit_graphql import RateLimitExceeded, graphql_ratelimit
    from ratelimit_graphql.context import caller_of
    from tests.graphql.callers import info, request

    @graphql_ratelimit(rate=ONE, key="token_or_ip", group="one")
    def resolver(root: None, info: Any) -> str:
        return "ok"

    context = request(authorization="Bearer sk-live-unchecked")
    context.limit_token = token
    try:
        return True, resolver(None, info(context)) + repr(caller_of(context))
    except RateLimitExceeded as error:
        return False, repr([error, getattr(error, "extensions", None)])


def channels(token: str) -> Answer:
    pytest.importorskip("channels")
    from ratelimit_channels import check_ws_rate_limit

    sent: list[Any] = []

    async def send(*parts: Any, **named: Any) -> None:
        sent.extend((parts, named))

    async def call() -> bool:
        scope = {"type": "websocket", "headers": UNCHECKED, "client": ["203.0.113.7", 1], "limit_token": token}
        consumer: Any = SimpleNamespace(scope=scope, send=send)
        return not await check_ws_rate_limit(consumer, rate=ONE, key="token_or_ip", group="one")

    return asyncio.run(call()), repr(sent)


def mcp(token: str) -> Answer:
    pytest.importorskip("mcp")
    from ratelimit_mcp.caller import identify

    async def call() -> Answer:
        scope: Any = {"type": "http", "headers": UNCHECKED, "client": ("203.0.113.7", 1), "limit_token": token}
        limiter = get_limiter()
        identity = identify(scope, limiter.settings)
        decision = await limiter.acheck(ONE, identity, key="token_or_ip", group="one", protocol="mcp")
        return decision.allowed, repr([identity, decision])

    return asyncio.run(call())


@pytest.mark.parametrize("call", [django_view, asgi, graphql, channels, mcp], ids=lambda call: call.__name__)
def test_an_accepted_token_has_its_own_budget_and_is_nowhere_in_the_open(
    call: Callable[[str], Answer], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), isolated() as limiter:
        answers = [call(SECRET), call(SECRET), call(OTHER)]
        assert [passed for passed, _ in answers] == [True, False, True]
        assert not limiter.peek(ONE, f"tok:{hashed(SECRET)}", group="one")
        assert limiter.peek(ONE, "ip:203.0.113.7", group="one")
        assert limiter.peek(ONE, "ip:127.0.0.1", group="one")
    left = "".join(left for _, left in answers) + caplog.text
    assert "sk-live" not in left
    assert f"key=tok:{hashed(SECRET)}" in caplog.text


def test_an_explanation_shows_the_hash_alone() -> None:
    with isolated():
        found = explain([("Authorization", SECRET)], "203.0.113.7", token=SECRET, rule="EXPORT")
    assert SECRET not in f"{found}{found!r}{found.as_dict()}"
    assert hashed(SECRET) in str(found)


def test_a_token_stands_in_no_key_of_the_store(redis_url: str) -> None:
    import redis

    limiter = Limiter(redis_url)
    for _ in range(2):
        limiter.check("EXPORT", Identity(token=SECRET), key="token_or_ip")
    with redis.Redis.from_url(redis_url) as server:
        keys = [key.decode() for key in server.scan_iter()]
    limiter.close()
    assert len(keys) == 1
    assert keys[0].startswith(f"rl:EXPORT:{{tok:{hashed(SECRET)}}}:")
