"""The old PyPI package of the same import name is noticed."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from ratelimit.namesake import warn_of_namesake


def test_its_files_beside_ours_are_warned_of(tmp_path: Path) -> None:
    for name in ("__init__.py", "decorators.py", "exception.py", "utils.py"):
        (tmp_path / name).touch()
    with pytest.warns(RuntimeWarning, match="pip uninstall ratelimit"):
        warn_of_namesake(str(tmp_path))


def test_our_own_files_are_not() -> None:
    import ratelimit

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_namesake(ratelimit.__path__[0])
