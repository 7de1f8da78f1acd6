"""Starlette's test client, asked again and again."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient


def codes(client: TestClient, times: int, path: str = "/", method: str = "GET", **more: Any) -> list[int]:
    """The status codes of so many requests."""
    return [client.request(method, path, **more).status_code for _ in range(times)]
