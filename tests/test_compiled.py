"""What runs is what was meant to be tested: the modules of a check compiled, or none."""

from __future__ import annotations

import os
import tomllib
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

PYPROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
HOOK = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
MODULES = [path.removesuffix(".py").replace("/", ".") for path in HOOK["modules"]]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_compiled_in_the_compiled_wheel_and_nowhere_else(name: str) -> None:
    file = import_module(f"ratelimit.{name}").__file__
    assert file is not None
    compiled = os.environ.get("TESTED_BUILD") == "compiled"  # set by the nox session
    assert file.endswith(tuple(EXTENSION_SUFFIXES)) == compiled


def test_the_compiled_wheel_is_made_on_request_only() -> None:
    assert HOOK["enable-by-default"] is False
