"""Names in the maps that the server does not have: asked for in advance, or noticed when it lists what it has."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from ratelimit import ConfigurationError
from ratelimit.asgi import Message, Send
from ratelimit_mcp.limit import LimitLike
from ratelimit_mcp.limits import Limits

logger = logging.getLogger("ratelimit.mcp")

MAX_LISTING: Final = 1_000_000
"""Bytes of a list's response that are looked at."""

_LISTED: Final[Mapping[str, tuple[str, str]]] = {"tools/list": ("tools", "tool"), "prompts/list": ("prompts", "prompt")}


async def check_mcp_names(
    server: Any,
    *,
    tools: Mapping[str, LimitLike] | None = None,
    resources: Mapping[str, LimitLike] | None = None,
    prompts: Mapping[str, LimitLike] | None = None,
) -> None:
    """Raises `ConfigurationError` for every name in these maps that `server` (an `MCPServer`, a `FastMCP`) does not have.

    For a test or a lifespan. A pattern has to mean at least one name.
    """
    limits = Limits(tools, None, resources=resources, prompts=prompts)
    try:
        ask = {"tool": [server.list_tools], "prompt": [server.list_prompts]}
        ask["resource"] = [server.list_resources, server.list_resource_templates]
    except AttributeError:
        raise ConfigurationError(
            f"{server!r} is neither an MCPServer nor a FastMCP, whose names could be asked"
        ) from None
    wrong: list[str] = []
    for kind, listings in ask.items():
        if limits.maps[kind]:
            names = [_name(item) for listing in listings for item in await listing()]
            wrong += _mistakes(limits, kind, names)
    if wrong:
        raise ConfigurationError("; ".join(wrong))


class Listings:
    """What is said once in the log when the server lists its tools or prompts, and lacks one that is in a map."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open = {method for method, (_, kind) in _LISTED.items() if limits.maps[kind]}

    def awaits(self, method: str) -> bool:
        """Whether the next result of `method` is of use."""
        return method in self._open

    def heard(self, method: str, result: object) -> None:
        """Compares the maps with a list that the server gave, unless it gives it in pages: one alone tells nothing."""
        member, kind = _LISTED[method]
        items = result.get(member) if isinstance(result, Mapping) else result
        if not isinstance(items, (list, tuple)):
            return
        self._open.discard(method)
        if isinstance(result, Mapping) and result.get("nextCursor"):
            return
        for mistake in _mistakes(self._limits, kind, map(_name, items)):
            logger.warning("%s; its limit limits nothing", mistake)

    def listening(self, method: str, send: Send) -> Send:
        """A `send` that lets every message of a response through, and then looks at what it said."""
        heard = bytearray()

        def listened(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.body" and self.awaits(method):
                heard.extend(message.get("body", b"")[: MAX_LISTING - len(heard)])
                if not message.get("more_body", False):
                    for result in _results(bytes(heard)):
                        self.heard(method, result)
            return send(message)

        return listened


def _mistakes(limits: Limits, kind: str, names: Iterable[str]) -> Iterator[str]:
    known = list(names)
    for key in limits.maps[kind].without(known):
        close = get_close_matches(key, known, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        yield f"{kind}s[{key!r}]: the server has no such {kind}{hint}"


def _name(item: Any) -> str:
    """How a client asks for a listed tool, prompt, resource or template."""
    if isinstance(item, Mapping):
        return str(item.get("name"))
    return str(getattr(item, "uri_template", None) or getattr(item, "uri", None) or item.name)


def _results(body: bytes) -> Iterator[object]:
    """The results in a response, plain or as an event stream."""
    lines = (
        [body] if body.lstrip().startswith(b"{") else [line[5:] for line in body.splitlines() if line[:5] == b"data:"]
    )
    for line in lines:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(message, dict) and isinstance(message.get("result"), dict):
            yield message["result"]
