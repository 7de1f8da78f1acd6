"""Callers with OAuth tokens, accepted by the SDK's and FastMCP's own middleware."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("mcp")
pytest.importorskip("fastmcp")

import fastmcp
import httpx2
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl
from starlette.middleware import Middleware

from ratelimit import Limiter
from ratelimit_mcp import MCPRateLimit, mcp_identity, mcp_ratelimit, oauth_subject
from tests.mcp.asgi import tool_call
from tests.mcp.served import connected, outcome, outcomes, serve

TOKENS = {"t-alice": ("one", "alice"), "t-alice-too": ("two", "alice"), "t-machine": ("machine", None)}


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        if token not in TOKENS:
            return None
        client_id, subject = TOKENS[token]
        return AccessToken(token=token, client_id=client_id, scopes=[], subject=subject)


def who() -> Any:
    async def search() -> str:
        return mcp_identity().key()

    return search


def sdk_app(limiter: Limiter) -> Any:
    url = AnyHttpUrl("http://127.0.0.1/mcp")
    settings = AuthSettings(issuer_url=url, resource_server_url=url, required_scopes=[], validate_token_resource=False)
    server = MCPServer("s", token_verifier=Verifier(), auth=settings)
    server.tool()(who())
    return server.streamable_http_app()


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def test_within_the_sdks_middleware_a_subject_has_one_budget(limiter: Limiter) -> None:
    app = sdk_app(limiter)
    app.user_middleware.append(Middleware(MCPRateLimit, tools={"search": "3/m"}))
    async with serve(app) as url:
        async with connected(url, **bearer("t-alice")) as (client, _):
            assert await outcome(client) == "user:sub:alice"
            assert await outcomes(client, 1) == ["answered"]
        async with connected(url, **bearer("t-alice-too")) as (client, _):
            assert await outcomes(client, 2) == ["answered", "denied"]
        async with connected(url, **bearer("t-machine")) as (client, _):
            assert await outcome(client) == "user:client:machine"


async def test_around_the_whole_sdk_application_the_wrapper_counts_addresses_and_the_tool_sees_the_token(
    limiter: Limiter,
) -> None:
    async with serve(MCPRateLimit(sdk_app(limiter), tools={"search": "2/m"})) as url:
        for token, expected in (("t-alice", "user:sub:alice"), ("t-machine", "user:client:machine")):
            async with connected(url, **bearer(token)) as (client, _):
                assert await outcome(client) == expected
        async with connected(url, **bearer("t-alice")) as (client, _):
            assert await outcomes(client, 1) == ["denied"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_token_is_found_in_a_tool_without_any_wrapper(mode: str, limiter: Limiter) -> None:
    async with serve(sdk_app(limiter)) as url, connected(url, mode, **bearer("t-alice")) as (client, _):
        assert await outcome(client) == "user:sub:alice"


async def test_within_fastmcps_middleware_subjects_may_be_user_ids(limiter: Limiter) -> None:
    tokens: dict[str, Any] = {
        "t-42": {"client_id": "one", "scopes": [], "sub": "42", "subject": "42"},
        "t-7": {"client_id": "one", "scopes": [], "sub": "7", "subject": "7"},
    }
    server = fastmcp.FastMCP("s", auth=StaticTokenVerifier(tokens))

    @server.tool
    @mcp_ratelimit("AI_QUERY")
    async def search() -> str:
        return mcp_identity().key()

    limit = Middleware(MCPRateLimit, tools={"search": "2/m"}, caller=oauth_subject)
    async with serve(server.http_app(middleware=[limit])) as url:
        async with connected(url, **bearer("t-42")) as (client, _):
            first = await outcome(client)
            assert await outcomes(client, 2) == ["answered", "denied"]
        async with connected(url, **bearer("t-7")) as (client, _):
            assert await outcomes(client, 3) == ["answered", "answered", "denied"]
    assert first == "user:42"
    assert limiter.peek("AI_QUERY", "user:42", cost=0).remaining == 18


async def test_an_unknown_token_is_the_applications_to_refuse(limiter: Limiter) -> None:
    async with serve(MCPRateLimit(sdk_app(limiter))) as url, httpx2.AsyncClient(headers=bearer("made-up")) as http:
        assert (await http.post(url, json=tool_call())).status_code == 401
