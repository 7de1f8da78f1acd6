"""What a star imports, with the frameworks and without them."""

from __future__ import annotations

import subprocess
import sys

import pytest

STAR = """
import sys
for name in {blocked}:
    sys.modules[name] = None
from ratelimit_asgi import *
print(sorted({{"RateLimitMiddleware", "document_limits", "limit"}} & set(globals())))
"""


@pytest.mark.parametrize(
    ("blocked", "there"),
    [
        (["starlette", "fastapi"], ["RateLimitMiddleware"]),
        (["fastapi"], ["RateLimitMiddleware", "limit"]),
        ([], ["RateLimitMiddleware", "document_limits", "limit"]),
    ],
)
def test_a_star_imports_what_can_be_imported(blocked: list[str], there: list[str]) -> None:
    for name in {"starlette", "fastapi"} - set(blocked):
        pytest.importorskip(name)
    ran = subprocess.run(
        [sys.executable, "-c", STAR.format(blocked=blocked)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert (ran.stdout.strip(), ran.stderr) == (str(there), "")
