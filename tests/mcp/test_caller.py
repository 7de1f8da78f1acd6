"""Whose budget a call spends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.authentication import UnauthenticatedUser

from ratelimit import Identity, Limiter
from ratelimit.settings import Settings
from ratelimit.testing import isolated
from ratelimit_mcp import MCPRateLimit, oauth_subject
from ratelimit_mcp.caller import identify
from tests.mcp.asgi import JSON, ToolRunner, http_scope, send_request, statuses, tool_call

FORWARDED = (JSON, (b"x-forwarded-for", b"198.51.100.1, 198.51.100.2"))


def oauth(client_id: str = "agent", subject: str | None = None, **more: Any) -> AuthenticatedUser:
    return AuthenticatedUser(AccessToken(token="secret", client_id=client_id, scopes=[], subject=subject, **more))


def key(scope: dict[str, Any], caller: Any = None, **settings: Any) -> str:
    return identify(scope, Settings(**settings), caller).key()


def test_a_forwarding_header_is_ignored_unless_a_proxy_is_configured() -> None:
    assert key(http_scope(FORWARDED)) == "ip:203.0.113.7"


def test_with_one_proxy_the_caller_is_the_last_entry_of_the_header() -> None:
    assert key(http_scope(FORWARDED), proxies_count=1) == "ip:198.51.100.2"


async def test_what_a_caller_adds_to_the_header_makes_no_new_budget() -> None:
    with isolated(proxies_count=1):
        wrapped = MCPRateLimit(ToolRunner(), tools={"search": "2/m"})
        made_up = [f"198.51.100.{n}, 192.0.2.9".encode() for n in range(3)]
        answers = [await statuses(wrapped, 1, headers=(JSON, (b"x-forwarded-for", value))) for value in made_up]
        assert answers == [[200], [200], [429]]
        assert await statuses(wrapped, 1, headers=(JSON, (b"x-forwarded-for", b"192.0.2.10"))) == [200]


@pytest.mark.parametrize("client", [None, ("testclient", 50000), ("", 0)])
async def test_a_connection_without_an_address_is_one_caller(client: Any, limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "1/m"})
    assert await statuses(wrapped, 2, headers=FORWARDED, client=client) == [200, 429]


def test_without_a_peer_a_trusted_header_still_tells_the_caller() -> None:
    scope = http_scope((JSON, (b"x-forwarded-for", b"203.0.113.5")), client=None)
    assert key(scope, proxies_count=1) == "ip:203.0.113.5"
    del scope["client"]
    assert key(scope, proxies_count=1) == "ip:203.0.113.5"


def test_a_subject_comes_before_its_client_and_both_before_the_address() -> None:
    assert key(http_scope(user=oauth("agent", "alice"))) == "user:sub:alice"
    assert key(http_scope(user=oauth("agent"))) == "user:client:agent"
    assert key(http_scope(user=oauth("agent", ""))) == "user:client:agent"


def test_an_accepted_token_can_be_the_key_and_is_hashed_in_it() -> None:
    token_key = identify(http_scope(user=oauth("agent", "alice")), Settings()).key("token_or_ip")
    assert token_key.startswith("tok:")
    assert "secret" not in token_key


def test_a_client_a_subject_and_a_user_of_one_name_are_three_callers() -> None:
    users = (oauth("7"), oauth("x", "7"), SimpleNamespace(is_authenticated=True, pk=7))
    assert len({key(http_scope(user=user)) for user in users}) == 3


def test_one_subject_of_two_issuers_is_two_callers() -> None:
    names = {
        key(http_scope(user=oauth("x", "7", claims=claims))) for claims in (None, {"iss": "https://a"}, {"iss": "b"})
    }
    assert names == {"user:sub:7", "user:iss:https://a|sub:7", "user:iss:b|sub:7"}


async def test_a_subject_has_one_budget_over_clients_addresses_and_sessions(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"search": "3/m"})
    for n, (client, session) in enumerate([("one", b"s1"), ("two", b"s2"), ("three", b"s3"), ("four", b"s4")]):
        scope = http_scope(
            (JSON, (b"mcp-session-id", session)), client=(f"192.0.2.{n}", 1), user=oauth(client, "alice")
        )
        assert (await send_request(wrapped, tool_call(), scope)).status == (200 if n < 3 else 429)
    assert await statuses(wrapped, 1, user=oauth("one", "bob")) == [200]


async def test_an_authenticated_caller_has_twice_a_categorys_rate(limiter: Limiter) -> None:
    wrapped = MCPRateLimit(ToolRunner(), tools={"ask": "AI_QUERY"})
    assert await statuses(wrapped, 41, tool_call("ask"), user=oauth("x", "a")) == [200] * 40 + [429]
    assert await statuses(wrapped, 21, tool_call("ask")) == [200] * 20 + [429]


def test_a_token_that_nobody_checked_and_a_session_id_tell_nothing() -> None:
    headers = (JSON, (b"authorization", b"Bearer anything"), (b"mcp-session-id", b"mine"))
    assert key(http_scope(headers)) == "ip:203.0.113.7"


@pytest.mark.parametrize("user", [None, UnauthenticatedUser(), SimpleNamespace(access_token="text")])
def test_a_user_without_an_id_is_counted_by_address(user: Any) -> None:
    assert key(http_scope(user=user)) == "ip:203.0.113.7"


def test_the_applications_own_user_is_the_caller_of_the_other_protocols() -> None:
    assert key(http_scope(user=SimpleNamespace(is_authenticated=True, pk=42))) == "user:42"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (42, "user:42"),
        ("42", "user:42"),
        (SimpleNamespace(is_authenticated=True, pk=42), "user:42"),
        (SimpleNamespace(is_authenticated=False, pk=42), "ip:203.0.113.7"),
        (Identity(name="tenant:9"), "tenant:9"),
        (None, "user:client:agent"),
    ],
)
def test_an_application_may_tell_the_caller_itself(told: Any, expected: str) -> None:
    assert key(http_scope(user=oauth()), lambda scope: told) == expected


def test_subjects_can_be_the_applications_user_ids() -> None:
    assert key(http_scope(user=oauth("agent", "42")), oauth_subject) == "user:42"
    assert key(http_scope(user=oauth("agent")), oauth_subject) == "user:client:agent"
    assert key(http_scope(), oauth_subject) == "ip:203.0.113.7"


async def test_the_callers_function_is_asked_with_the_scope_of_each_call(limiter: Limiter) -> None:
    asked: list[Any] = []
    wrapped = MCPRateLimit(app := ToolRunner(), caller=asked.append)
    await statuses(wrapped, 2)
    await statuses(wrapped, 1, tool_call(method="ping"))
    assert asked == app.scopes[:2]
