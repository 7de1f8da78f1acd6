"""Names that the server does not have are noticed: when asked, when it lists what it has, when it has taken a function."""

from __future__ import annotations

import json
import logging
import warnings
from typing import Any

import pytest

pytest.importorskip("mcp")
pytest.importorskip("fastmcp")

import fastmcp
from mcp.server.mcpserver import MCPServer

from ratelimit import ConfigurationError, Limiter
from ratelimit_mcp import MCPRateLimit, check_mcp_names, mcp_ratelimit
from tests.mcp.asgi import JSON, send_request, statuses, tool_call
from tests.mcp.limited import CARRIERS, KINDS, client_of, filled, http_app, make_server
from tests.mcp.served import MODES, connected, serve

BOTH = [MCPServer, fastmcp.FastMCP]
TYPO = "tools['serch']: the server has no such tool; did you mean 'search'?; its limit limits nothing"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.WARNING, "ratelimit.mcp")
    return lambda: [record.message for record in caplog.records if record.name == "ratelimit.mcp"]


@pytest.mark.parametrize("kind", BOTH)
async def test_names_and_patterns_that_the_server_has_are_in_order(kind: Any) -> None:
    await check_mcp_names(
        filled(kind("s")),
        tools={"search": "AI_QUERY", "f*": "5/m"},
        resources={"docs://readme": "5/m", "docs://{page}/text": "5/m", "docs://*": "5/m", "docs://intro/text": "5/m"},
        prompts={"write": "5/m"},
    )


@pytest.mark.parametrize("kind", BOTH)
async def test_every_name_that_the_server_lacks_is_told(kind: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        await check_mcp_names(
            filled(kind("s")),
            tools={"serch": "AI_QUERY", "search": "5/m", "x*": "5/m"},
            resources={"doc://readme": "5/m"},
            prompts={"rite": "5/m"},
        )
    assert str(caught.value).split("; ") == [
        "tools['serch']: the server has no such tool",
        "did you mean 'search'?",
        "tools['x*']: the server has no such tool",
        "prompts['rite']: the server has no such prompt",
        "did you mean 'write'?",
        "resources['doc://readme']: the server has no such resource",
        "did you mean 'docs://readme'?",
    ]


async def test_what_has_no_names_is_told_as_such() -> None:
    with pytest.raises(ConfigurationError, match="is neither an MCPServer nor a FastMCP"):
        await check_mcp_names(filled(MCPServer("s")).streamable_http_app(), tools={"search": "5/m"})
    with pytest.raises(ConfigurationError, match=r"tools\['search'\]: .*5/x"):
        await check_mcp_names(MCPServer("s"), tools={"search": "5/x"})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("carrier", CARRIERS)
async def test_the_middleware_says_so_at_the_first_list(kind: str, carrier: str, limiter: Limiter, said: Any) -> None:
    server = make_server(kind, tools={"serch": "5/m", "fetch": "5/m"}, prompts={"write": "5/m"})
    async with client_of(server, carrier) as client:
        for _ in range(2):
            await client.list_tools()
            await client.list_prompts()
    assert said() == [TYPO]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trust_headers", [True, False])
async def test_the_wrapper_says_so_at_the_first_list(
    kind: str, mode: str, trust_headers: bool, limiter: Limiter, said: Any
) -> None:
    app = http_app(filled({"sdk": MCPServer, "fastmcp": fastmcp.FastMCP}[kind]("s")))
    wrapped = MCPRateLimit(app, tools={"serch": "5/m"}, trust_headers=trust_headers)
    async with serve(wrapped) as url, connected(url, mode) as (client, _):
        for _ in range(2):
            assert len((await client.list_tools()).tools) == 3
    assert said() == [TYPO]


def answering(*parts: bytes) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    return app


@pytest.mark.parametrize(
    "parts",
    [
        [b""],
        [b"{"],
        [b"[]"],
        [b'{"error":{}}'],
        [b'{"result":[]}'],
        [b'{"result":{}}'],
        [b'{"result":{"tools":3}}'],
        [b'{"result":{"tools":[],"nextCursor":"2"}}'],
        [b"data: {"],
        [b"\xff\xfe"],
    ],
    ids=str,
)
async def test_an_answer_that_is_no_whole_list_tells_nothing(parts: list[bytes], limiter: Limiter, said: Any) -> None:
    wrapped = MCPRateLimit(answering(*parts), tools={"search": "5/m"})
    response = await send_request(wrapped, tool_call(method="tools/list"))
    assert (response.body, said()) == (b"".join(parts), [])


async def test_a_list_in_pieces_passes_piece_by_piece_and_is_read(limiter: Limiter, said: Any) -> None:
    listed = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "search"}]}}).encode()
    for body in (listed, b"event: message\r\ndata: " + listed + b"\r\n\r\n"):
        wrapped = MCPRateLimit(answering(body[:9], body[9:]), tools={"serch": "5/m"})
        response = await send_request(wrapped, tool_call(method="tools/list"))
        assert [message.get("body") for message in response.messages[1:]] == [body[:9], body[9:], None]
    assert said() == [TYPO, TYPO]


async def test_a_list_in_pages_is_not_compared(limiter: Limiter, said: Any) -> None:
    pages = [{"tools": [{"name": "search"}], "nextCursor": "2"}, {"tools": [{"name": "fetch"}]}]
    left = [json.dumps({"jsonrpc": "2.0", "id": 1, "result": page}).encode() for page in pages]

    async def app(*given: Any) -> None:
        await answering(left.pop(0))(*given)

    wrapped = MCPRateLimit(app, tools={"search": "5/m"})
    assert await statuses(wrapped, 2, tool_call(method="tools/list")) == [200, 200]
    assert said() == []


async def test_a_list_without_end_is_not_kept(limiter: Limiter, said: Any) -> None:
    wrapped = MCPRateLimit(answering(*[b" " * 500_000] * 5), tools={"serch": "5/m"})
    assert await statuses(wrapped, 1, tool_call(method="tools/list")) == [200]
    assert said() == []


# The order of decorators


@pytest.mark.parametrize("kind", BOTH)
def test_a_decorator_above_the_servers_own_is_noticed(kind: Any) -> None:
    server = kind("s")
    with pytest.warns(RuntimeWarning, match=r"above the server's own decorator of .*search.*put it below") as caught:

        @mcp_ratelimit("AI_QUERY")
        @server.tool()  # type: ignore[untyped-decorator]
        async def search() -> str:
            return "ran"

    assert caught[0].filename == __file__


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("register", ["prompt", "resource"])
def test_so_is_one_above_a_prompts_or_a_resources(kind: Any, register: str) -> None:
    server = kind("s")
    decorate = server.prompt() if register == "prompt" else server.resource("docs://readme")
    with pytest.warns(RuntimeWarning, match="put it below"):

        @mcp_ratelimit("AI_QUERY")
        @decorate  # type: ignore[untyped-decorator]
        async def readme() -> str:
            return "ran"


@pytest.mark.parametrize("kind", BOTH)
def test_a_decorator_below_is_in_order(kind: Any) -> None:
    server = kind("s")
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @server.tool()  # type: ignore[untyped-decorator]
        @mcp_ratelimit("AI_QUERY")
        async def search() -> str:
            return "ran"

        mcp_ratelimit("AI_QUERY")(search.__wrapped__)  # limited once more, for another server, say
