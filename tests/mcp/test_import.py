"""What importing the adapter brings in."""

from __future__ import annotations

import pytest

import ratelimit_mcp
from tests.interpreter import printed, star_imported

NAMES = {"FastMCPMiddleware", "MCPRateLimitExceeded", "MCPRateLimit"}
SCRIPT = """
import sys
import ratelimit_mcp
assert callable(ratelimit_mcp.MCPRateLimit) and callable(ratelimit_mcp.mcp_ratelimit("1/m"))
print(sorted({name.partition(".")[0] for name in sys.modules} & {"mcp", "fastmcp", "starlette", "pydantic", "redis"}))
"""


def test_neither_mcp_nor_fastmcp_is_imported() -> None:
    assert printed(SCRIPT) == "[]"


def test_the_exception_is_there_where_mcp_is() -> None:
    pytest.importorskip("mcp")
    assert ratelimit_mcp.MCPRateLimitExceeded.__name__ in ratelimit_mcp.__all__


@pytest.mark.parametrize(
    ("blocked", "there"),
    [
        (["fastmcp"], ["MCPRateLimit", "MCPRateLimitExceeded"]),
        (["fastmcp", "mcp"], ["MCPRateLimit"]),
        ([], ["FastMCPMiddleware", "MCPRateLimit", "MCPRateLimitExceeded"]),
    ],
)
def test_a_star_imports_what_can_be_imported(blocked: list[str], there: list[str]) -> None:
    assert star_imported("ratelimit_mcp", NAMES, ("mcp", "fastmcp"), blocked) == str(there)


def test_a_name_that_does_not_exist_is_told_as_one() -> None:
    with pytest.raises(AttributeError, match="'RateLimit'"):
        _ = ratelimit_mcp.RateLimit  # type: ignore[attr-defined]
