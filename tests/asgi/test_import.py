"""What a star imports, with the frameworks and without them."""

from __future__ import annotations

import pytest

from tests.interpreter import star_imported

NAMES = {"RateLimitMiddleware", "document_limits", "limit"}


@pytest.mark.parametrize(
    ("blocked", "there"),
    [
        (["starlette", "fastapi"], ["RateLimitMiddleware"]),
        (["fastapi"], ["RateLimitMiddleware", "limit"]),
        ([], ["RateLimitMiddleware", "document_limits", "limit"]),
    ],
)
def test_a_star_imports_what_can_be_imported(blocked: list[str], there: list[str]) -> None:
    assert star_imported("ratelimit_asgi", NAMES, ("starlette", "fastapi"), blocked) == str(there)
