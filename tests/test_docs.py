"""The documentation's Python runs: every ```python block of a page in order, in one namespace, against a fresh limiter.

CONTRIBUTING.md tells what a page may say: `<!-- needs: ... -->` and `<!-- skip: next -->`.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, SkipParser

from ratelimit.categories import SETTING_NAMES
from ratelimit.testing import isolated

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NEEDS = re.compile(r"<!-- needs: (.+?) -->")


class Runner:
    """Runs a page's blocks as the asyncio REPL would: `await` may stand at the top."""

    def __init__(self, loop: asyncio.Runner) -> None:
        self._loop = loop

    def __call__(self, example: Example) -> None:
        source = "\n" * (example.line + example.parsed.line_offset) + example.parsed
        code = compile(source, example.path, "exec", flags=PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            self._loop.run(eval(code, example.namespace))
        else:
            exec(code, example.namespace)


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def missing(page: Path) -> list[str]:
    """Which of the packages that a page says it needs are not here."""
    stated = NEEDS.search(page.read_text())
    needed = re.split(r"[,\s]+", stated[1]) if stated else []
    return [name for name in needed if find_spec(name) is None]


@pytest.fixture
def module(page: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An importable module for the page's names: libraries look up where a class or a function was made."""
    module = ModuleType(f"page_{page.stem.lower()}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_pages_code_runs(page: Path, module: ModuleType, loop: asyncio.Runner) -> None:
    if absent := missing(page):
        pytest.skip(f"not in this environment: {', '.join(absent)}")
    document = Sybil([CodeBlockParser("python", Runner(loop)), SkipParser()]).parse(page)
    document.namespace = vars(module)
    with isolated():
        for example in document.examples():
            example.evaluate()


def test_the_reference_knows_every_setting() -> None:
    page = (ROOT / "docs" / "reference.md").read_text()
    rows = " ".join(line for line in page.splitlines() if line.startswith("| `RATELIMIT_"))
    assert [name for name in sorted(SETTING_NAMES) if f"`RATELIMIT_{name}`" not in rows] == []
