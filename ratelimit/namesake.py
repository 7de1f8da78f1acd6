"""Notices the old, unrelated PyPI package `ratelimit`, which is installed into the same folder as this one."""

from __future__ import annotations

import os
import warnings

_ITS_FILES = ("decorators.py", "exception.py")


def warn_of_namesake(folder: str) -> None:
    """Warns when the other package's files lie in `folder`, this package's own."""
    if all(os.path.exists(os.path.join(folder, name)) for name in _ITS_FILES):
        warnings.warn(
            "the PyPI package 'ratelimit' is installed over 'ratelimit-engine': they share an import name. "
            "Mend it with: pip uninstall ratelimit && pip install --force-reinstall ratelimit-engine",
            RuntimeWarning,
            stacklevel=3,
        )
