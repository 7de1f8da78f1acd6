"""What importing the adapter brings in."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ratelimit_mcp

SCRIPT = """
import sys
import ratelimit_mcp
assert callable(ratelimit_mcp.MCPRateLimit) and callable(ratelimit_mcp.mcp_ratelimit("1/m"))
print(sorted({name.partition(".")[0] for name in sys.modules} & {"mcp", "fastmcp", "starlette", "pydantic", "redis"}))
"""


def test_neither_mcp_nor_fastmcp_is_imported() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


def test_the_exception_is_there_where_mcp_is() -> None:
    pytest.importorskip("mcp")
    assert ratelimit_mcp.MCPRateLimitExceeded.__name__ in ratelimit_mcp.__all__


STAR = """
import sys
for name in {blocked}:
    sys.modules[name] = None
from ratelimit_mcp import *
print(sorted({{"FastMCPMiddleware", "MCPRateLimitExceeded", "MCPRateLimit"}} & set(globals())))
"""


@pytest.mark.parametrize(
    ("blocked", "there"),
    [
        (["fastmcp"], ["MCPRateLimit", "MCPRateLimitExceeded"]),
        (["fastmcp", "mcp"], ["MCPRateLimit"]),
        ([], ["FastMCPMiddleware", "MCPRateLimit", "MCPRateLimitExceeded"]),
    ],
)
def test_a_star_imports_what_can_be_imported(blocked: list[str], there: list[str]) -> None:
    for name in {"mcp", "fastmcp"} - set(blocked):
        pytest.importorskip(name)
    ran = subprocess.run(
        [sys.executable, "-c", STAR.format(blocked=blocked)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert (ran.stdout.strip(), ran.stderr) == (str(there), "")


def test_a_name_that_does_not_exist_is_told_as_one() -> None:
    with pytest.raises(AttributeError, match="'RateLimit'"):
        _ = ratelimit_mcp.RateLimit  # type: ignore[attr-defined]
