"""The answers that the documentation shows are ones that were given, over the wire."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from ratelimit.settings import override
from ratelimit_graphql import OperationLimit
from tests.graphql.ariadne_operations import asgi
from tests.graphql.loops import served
from tests.graphql.operations import LOUD
from tests.graphql.sockets import opened

pytestmark = pytest.mark.usefixtures("limiter")

DOCS = Path(__file__).parents[2] / "docs"
OTHERS = {"date", "server", "content-length"}


def captured(page: str, kind: str) -> str:
    (found,) = re.findall(rf"<!-- captured -->\n```{kind}\n(.+?)\n```", (DOCS / page).read_text(), re.DOTALL)
    return str(found)


async def refused(application: Any, style: str) -> httpx.Response:
    """The third answer to an operation of four fields, at ten a minute."""
    with served(application) as address, override(headers=style):
        async with httpx.AsyncClient(trust_env=False) as client:
            query = {"query": "{ a: ping b: ping c: ping d: ping }"}
            answers = [await client.post(f"http://{address}/", json=query) for _ in range(3)]
    return answers[2]


def written(answer: httpx.Response) -> list[str]:
    headers = [f"{name}: {value}" for name, value in answer.headers.items() if name not in OTHERS]
    return [f"HTTP/1.1 {answer.status_code} {answer.reason_phrase}", *sorted(headers)]


async def test_the_refusal_of_an_operation() -> None:
    head, _, body = captured("graphql.md", "http").partition("\n\n")
    answer = await refused(asgi(LOUD), "ietf")
    status, *headers = head.splitlines()
    assert written(answer) == [status, *sorted(headers)]
    assert answer.json() == json.loads(body)


async def test_the_refusal_of_an_operation_by_strawberry() -> None:
    pytest.importorskip("strawberry")
    from strawberry.asgi import GraphQL

    from tests.graphql.strawberry_operations import schema

    head, _, body = captured("graphql-strawberry.md", "http").partition("\n\n")
    answer = await refused(GraphQL(schema(LOUD)), "x")
    status, *headers = head.splitlines()
    assert written(answer) == [status, *sorted(headers)]
    assert answer.text == body


async def test_the_last_events_of_a_counted_subscription() -> None:
    with served(asgi(OperationLimit(rate="99/m"))) as address:
        socket = await opened(address)
        messages = await socket.operation(1, "subscription { counted }")
        await socket.close()
    shown = [json.loads(line) for line in captured("graphql.md", "json").splitlines()]
    assert messages == [(one["type"], one.get("payload")) for one in shown]
    assert {one["id"] for one in shown} == {"1"}
