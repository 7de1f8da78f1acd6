"""Programs in a fresh Python, which has imported nothing yet."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Sequence

import pytest

STAR = """
import sys
for name in {blocked}:
    sys.modules[name] = None
from {package} import *
print(sorted({names} & set(globals())))
"""


def printed(program: str) -> str:
    """What `program` prints. It must not complain."""
    environment = {"PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert ran.stderr == ""
    return ran.stdout.strip()


def star_imported(package: str, names: set[str], frameworks: Collection[str], blocked: Sequence[str]) -> str:
    """Which of `names` a star takes from `package` where the `blocked` of its `frameworks` are not installed."""
    for name in set(frameworks) - set(blocked):
        pytest.importorskip(name)
    return printed(STAR.format(package=package, names=names, blocked=blocked))
