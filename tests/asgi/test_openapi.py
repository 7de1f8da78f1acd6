"""What a schema tells of limits."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

pytest.importorskip("fastapi")

from fastapi import APIRouter, Depends, FastAPI
from fastapi.testclient import TestClient

from ratelimit.testing import isolated
from ratelimit_asgi import document_limits, endpoint_ratelimit, limit


def documented(app: FastAPI) -> dict[str, Any]:
    """The 429 of each operation, by method and path."""
    return {
        f"{method} {path}": operation["responses"].get("429")
        for path, operations in app.openapi()["paths"].items()
        for method, operation in operations.items()
    }


async def nested(decision: Annotated[Any, Depends(limit(rate="1/m"))]) -> None: ...


def test_every_limited_operation_documents_its_429_and_no_other_does() -> None:
    app, router = FastAPI(), APIRouter(dependencies=[Depends(limit("AI_QUERY"))])
    document_limits(app)
    app.get("/free")(lambda: None)
    app.post("/dependency", dependencies=[Depends(limit("AI_QUERY"))])(lambda: None)
    app.get("/nested", dependencies=[Depends(nested)])(lambda: None)
    app.get("/decorated/{x}")(endpoint_ratelimit("AI_QUERY")(lambda x: x))
    app.get("/hidden", include_in_schema=False, dependencies=[Depends(limit("AI_QUERY"))])(lambda: None)
    own = {429: {"description": "Mine"}}
    app.get("/own", responses=own, dependencies=[Depends(limit("AI_QUERY"))])(lambda: None)
    app.websocket("/ws", dependencies=[Depends(limit("AI_QUERY"))])(nested)
    router.get("/late")(lambda: None)
    app.include_router(router, prefix="/v1")  # after document_limits
    found = documented(app)
    told = {name for name, answer in found.items() if answer and answer["description"] == "Too many requests"}
    assert told == {"post /dependency", "get /nested", "get /decorated/{x}", "get /v1/late"}
    assert found["get /free"] is None
    assert found["get /own"]["description"] == "Mine"


def test_the_answer_is_what_the_settings_say() -> None:
    def fresh() -> FastAPI:
        app = FastAPI(dependencies=[Depends(limit("AI_QUERY"))])
        app.get("/")(lambda: None)
        document_limits(app)
        document_limits(app)  # twice is once
        return app

    with isolated():
        (answer,) = documented(fresh()).values()
    assert answer["headers"].keys() == {"Retry-After"}
    assert answer["content"].keys() == {"application/json"}
    with isolated(errors="problem", headers="x"):
        (answer,) = documented(fresh()).values()
    assert answer["headers"].keys() == {
        "Retry-After",
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
    }
    assert answer["content"].keys() == {"application/problem+json"}
    with isolated(headers="ietf"):
        (answer,) = documented(fresh()).values()
    assert answer["headers"].keys() == {"Retry-After", "RateLimit-Policy", "RateLimit"}


@pytest.mark.parametrize("errors", ["json", "problem"])
def test_a_denial_is_what_the_schema_says(errors: str) -> None:
    app = FastAPI(dependencies=[Depends(limit(rate="0/m"))])
    app.get("/")(lambda: None)
    document_limits(app)
    with isolated(errors=errors):
        client = TestClient(app)
        answer = client.get("/openapi.json").json()["paths"]["/"]["get"]["responses"]["429"]
        denied = client.get("/", headers={"X-Request-ID": "a-1"})
    (kind,) = answer["content"]
    assert denied.headers["content-type"] == kind
    _matches(denied.json(), answer["content"][kind]["schema"])


KINDS: dict[str, Any] = {"object": dict, "array": list, "string": str, "integer": int, "null": type(None)}


def _matches(value: Any, schema: dict[str, Any]) -> None:
    """Of a schema, what is used here."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    assert isinstance(value, tuple(KINDS[kind] for kind in kinds)), (value, schema)
    assert value == schema.get("const", value)
    if isinstance(value, dict):
        assert set(schema["required"]) <= value.keys() <= schema["properties"].keys()
        for name, one in value.items():
            _matches(one, schema["properties"][name])
    for one in value if isinstance(value, list) else ():
        _matches(one, schema["items"])
