"""Callables given by their dotted path, imported when first needed: `"shop.limits.tenant"`."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.utils.module_loading import import_string

from ratelimit import ConfigurationError

_PATH: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")


def is_path(value: object) -> bool:
    """Whether `value` is written like `package.module.name`; a rate such as `1.5/m` is not."""
    return isinstance(value, str) and _PATH.fullmatch(value) is not None


class Reference:
    """A callable known by its path. Importing waits for the first call: the path may lie in the module that is
    being imported right now. The system checks find a wrong path before the first request does."""

    def __init__(self, path: str, what: str, *, listed: bool = True) -> None:
        """`what` is what an error calls it; `listed` False leaves its check to whoever makes it."""
        self.path = path
        self._what = what
        self._target: Callable[..., Any] | None = None
        if listed:
            with _lock:
                _made.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.target()(*args, **kwargs)

    def target(self) -> Callable[..., Any]:
        """The callable itself. Raises `ConfigurationError` that names the path if there is none."""
        if self._target is None:
            self._target = load(self.path, self._what)
        return self._target

    def plain(self) -> Callable[..., Any]:
        """`target`, for where nothing can be awaited. Raises `ConfigurationError` for an async function, too."""
        target = self.target()
        if iscoroutinefunction(target):
            raise ConfigurationError(
                f"{self._what}={self.path!r} is async; it must be a plain function (group, request)"
            )
        return target


_made: weakref.WeakSet[Reference] = weakref.WeakSet()
_lock = threading.Lock()


def made() -> list[Reference]:
    """Every listed reference in use, by path."""
    with _lock:
        return sorted(_made, key=lambda reference: reference.path)


def load(path: str, what: str) -> Callable[..., Any]:
    """The callable at `path`. Raises `ConfigurationError` that names `what` and the path."""
    try:
        target = import_string(path)
    except ImportError as error:
        raise ConfigurationError(f"{what}={path!r} cannot be imported: {error}") from error
    if not callable(target):
        raise ConfigurationError(f"{what}={path!r} is not callable")
    return target  # type: ignore[no-any-return]
