"""Where a rate of an endpoint's own counts: under its method and the path that its route was declared with.

Rules:
- Nothing that a client may choose is part of the name: neither what stands for a path parameter, nor a method that nobody
  knows. HEAD counts as GET.
- An application that is mounted counts by the path it is mounted under: it may be mounted twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from starlette.routing import Match

from ratelimit.asgi import Scope

_METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"})


def own_group(scope: Scope, rate: object = "own") -> str:
    """`route:GET:/items/<id>:10/m`: the name of a route's own budget at `rate`."""
    # Braces would be escaped in keys and headers.
    path = (_mounts(scope) + _path(scope)).replace("{", "<").replace("}", ">")
    return f"route:{_method(scope)}:{path}:{rate}"


def _method(scope: Scope) -> str:
    if scope["type"] == "websocket":
        return "WS"
    method: str = scope["method"].upper()
    return method if method in _METHODS else "GET" if method == "HEAD" else "*"


def _path(scope: Scope) -> str:
    """The route's path in its application; the endpoint's name where Starlette does not tell the route."""
    # FastAPI knows a route of an included router by what it became there, prefix and all.
    context = (scope.get("fastapi") or {}).get("effective_route_context")
    for route in (getattr(context, "starlette_route", None), context, scope.get("route")):
        path = getattr(route, "path_format", None)
        if path:
            return str(path)
    endpoint: Any = scope.get("endpoint")
    module = getattr(endpoint, "__module__", None) or type(endpoint).__module__
    return f"{module}.{getattr(endpoint, '__qualname__', type(endpoint).__qualname__)}"


def _mounts(scope: Scope) -> str:
    """The paths that the applications around the route's own one were mounted under, as they were declared."""
    outermost = scope.get("app_root_path")
    if outermost is None:  # which the first mount sets
        return ""
    probe = {**scope, "root_path": outermost, "path_params": {}, "fastapi": {}}
    routes, found = getattr(scope.get("router"), "routes", ()), ""
    while probe["root_path"] != scope["root_path"]:
        mount, child = _matching(routes, probe)
        if mount is None:
            break
        found += mount.path_format.removesuffix("/{path}") if hasattr(mount, "path_format") else mount.host
        routes = mount.routes
        probe.update(child)
    return found


def _matching(routes: Iterable[Any], scope: Scope) -> tuple[Any, Scope]:
    """The route that the router took, if there are routes behind it, and what it adds to the scope."""
    for route in routes:
        match, child = route.matches(scope)
        if match is Match.FULL:
            return (route, child) if getattr(route, "routes", None) else (None, {})
    return None, {}
