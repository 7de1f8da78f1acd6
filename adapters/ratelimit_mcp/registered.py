"""Noticing a function that a server has taken already, so that a decorator above the server's own would limit nothing."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

LIMITED: Final = "__mcp_ratelimit__"
"""What a limited function is known by."""


def warn_if_registered(function: Callable[..., Any]) -> None:
    """Warns if a server that the decorated function's place can name has registered `function`.

    A server's decorator gives back the function itself, which tells nothing; the servers are looked for among the names
    of the place where the decorator stands. A warning, for one function may be registered twice, limited once.
    """
    frame = sys._getframe(2)  # who decorates
    for server in _servers([*frame.f_locals.values(), *frame.f_globals.values()]):
        if any(_is(held, function) for held in _functions(server)):
            warnings.warn(
                f"mcp_ratelimit stands above the server's own decorator of {function.__qualname__}, which has taken the "
                "function without the limit; put it below, next to the function",
                RuntimeWarning,
                stacklevel=3,
            )
            return


def _servers(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if any(one.__name__ in ("MCPServer", "FastMCP") for one in type(value).__mro__):
            yield value


def _functions(server: Any) -> Iterator[Any]:
    """The functions behind a server's tools, prompts and resources, as far as this release of it keeps them where others do."""
    managers = (("_tool_manager", "_tools"), ("_prompt_manager", "_prompts"))
    resources = (("_resource_manager", "_resources"), ("_resource_manager", "_templates"))
    for owner, held in (*managers, *resources, ("_local_provider", "_components")):
        for item in list(getattr(getattr(server, owner, None), held, {}).values()):
            yield getattr(item, "fn", None)


def _is(held: Any, function: Any) -> bool:
    """Whether a server holds the function, or its own wrapper around it; a limited one is in order."""
    return held is function or (getattr(held, "__wrapped__", None) is function and not hasattr(held, LIMITED))
