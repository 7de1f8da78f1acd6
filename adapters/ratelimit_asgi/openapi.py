"""What limits add to an OpenAPI schema: the 429 of every operation that has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from fastapi import FastAPI, routing

from ratelimit.settings import Settings
from ratelimit_asgi.endpoint import EndpointLimit

_INTEGER: Final[dict[str, Any]] = {"type": "integer"}
_TEXT: Final[dict[str, Any]] = {"type": "string"}
_ENVELOPE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "details", "request_id"],
            "properties": {
                "code": {"type": "string", "const": "RATE_LIMITED"},
                "message": _TEXT,
                "details": {
                    "type": "object",
                    "required": ["retry_after_ms"],
                    "properties": {"retry_after_ms": {"type": ["integer", "null"]}},
                },
                "request_id": {"type": ["string", "null"]},
            },
        }
    },
}
_PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "violated-policies", "code", "retry_after_ms"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": _TEXT,
        "status": {"type": "integer", "const": 429},
        "detail": _TEXT,
        "violated-policies": {"type": "array", "items": _TEXT},
        "code": {"type": "string", "const": "RATE_LIMITED"},
        "retry_after_ms": {"type": ["integer", "null"]},
        "request_id": _TEXT,
    },
}
_STYLES: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "none": {},
    "ietf": {"RateLimit-Policy": _TEXT, "RateLimit": _TEXT},
    "x": {"X-RateLimit-Limit": _INTEGER, "X-RateLimit-Remaining": _INTEGER, "X-RateLimit-Reset": _INTEGER},
}


def document_limits(app: FastAPI) -> None:
    """Has the schema of `app` tell of a 429 wherever a dependency or a decorator may answer one.

    Found when the schema is generated, so that routers which are included later count. What a route says of its 429
    itself stays as it is.
    """
    generate: Callable[[], dict[str, Any]] = app.openapi

    def openapi() -> dict[str, Any]:
        schema = generate()
        for operation, limit in _limited(schema, app):
            responses = operation.setdefault("responses", {})
            if "429" not in responses:
                responses["429"] = _denial(limit.settings)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def _limited(schema: dict[str, Any], app: FastAPI) -> Iterator[tuple[dict[str, Any], EndpointLimit]]:
    """The operations of a schema that have a limit."""
    # Newer FastAPI keeps routers as they are, and tells what their routes became where they were included.
    each: Any = getattr(routing, "iter_route_contexts", iter)
    for route in each(app.routes):
        limit = _limit_of(getattr(route, "dependant", None))
        if limit is not None:
            operations = schema.get("paths", {}).get(route.path_format, {})
            for method in getattr(route, "methods", None) or ():
                if method.lower() in operations:
                    yield operations[method.lower()], limit


def _limit_of(dependant: Any) -> EndpointLimit | None:
    """The first limit among the dependencies of a route, and theirs."""
    if dependant is None:
        return None
    call = dependant.call
    for one in (call, getattr(call, "__self__", None)):
        if isinstance(one, EndpointLimit):
            return one
    return next(filter(None, map(_limit_of, dependant.dependencies)), None)


def _denial(settings: Settings) -> dict[str, Any]:
    kind, schema = (
        ("application/problem+json", _PROBLEM) if settings.errors == "problem" else ("application/json", _ENVELOPE)
    )
    headers = {"Retry-After": {"description": "Whole seconds to wait.", "schema": {**_INTEGER, "minimum": 1}}}
    headers |= {name: {"schema": shown} for name, shown in _STYLES[settings.headers].items()}
    return {"description": "Too many requests", "headers": headers, "content": {kind: {"schema": schema}}}
