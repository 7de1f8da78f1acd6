"""The benchmarks still run. Nothing here looks at a time: what a check costs is no matter of pass or fail."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULES = {path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py")}
if not find_spec("matplotlib"):
    MODULES.discard("chart")


def run(*words: str) -> str:
    """What a Python of its own prints: the benchmarks add categories and settle what is logged."""
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=25)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_can_be_imported() -> None:
    run("-c", "".join(f"import benchmarks.{module}\n" for module in MODULES))


def test_the_memory_rows_are_measured_and_kept(tmp_path: Path) -> None:
    printed = run("-m", "benchmarks", "--once", "--only", "memory", "--output", str(tmp_path))
    assert [line for line in printed.splitlines() if line.startswith("memory: ")] == [
        "memory: hot key",
        "memory: 1024 keys in turn",
        "memory: async, hot key",
    ]
    assert '"name": "ratelimit, token bucket"' in (tmp_path / "partial.json").read_text()
