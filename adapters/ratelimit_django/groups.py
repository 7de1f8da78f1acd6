"""The default group of a decorated view: its module and qualified name, one view's alone.

Rules:
- A method's group bears the class of the instance that is called, not the class or decorator that happens to define
  the method: `shop.views.Basket` for `dispatch`, `shop.views.Basket.post` for others.
- The second of several limits on one view has `#2` at the end, the third `#3`, counted from the view outwards.
- When a name is taken by another view that is still alive (a lambda, a partial, a function made in a function), the
  next one has `+2` at the end, in the order of decoration.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any, Final

from django.http import HttpRequest

MARK: Final = "_ratelimit_"
"""Begins the attribute that each limit leaves on the view. `functools.wraps` and Django carry them outwards."""
_SYNC_IN_ASYNC_CLASSES: Final = frozenset({"dispatch", "options"})
"""Django's plain methods that give a coroutine when the class's handlers are async."""


class LiveNames:
    """Gives each of several living holders of one name an ending of its own, the lowest that is free."""

    def __init__(self) -> None:
        self._taken: dict[str, set[int]] = {}
        self._lock = threading.RLock()  # a holder may be collected, and so released, while another one claims

    def claim(self, name: str, holder: object) -> str:
        """`name` for its first living holder, `name+2` for the second."""
        with self._lock:
            taken = self._taken.get(name, set())
            number = next(n for n in range(1, len(taken) + 2) if n not in taken)
            taken.add(number)
            self._taken[name] = taken  # last, for a release between these lines may have dropped an empty one
        weakref.finalize(holder, self._release, name, number).atexit = False
        return name if number == 1 else f"{name}+{number}"

    def _release(self, name: str, number: int) -> None:
        with self._lock:
            taken = self._taken[name]
            taken.discard(number)
            if not taken:
                del self._taken[name]


_functions = LiveNames()
_classes = LiveNames()
_class_names: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
_class_lock = threading.Lock()


class DefaultGroup:
    """The default group of limit `number` on `view`. `holder` is the decorated view, whose life is that of the name."""

    def __init__(self, view: Callable[..., Any], holder: Any, number: int) -> None:
        depth = 1 + sum(name.startswith(MARK) for name in getattr(view, "__dict__", ()))
        setattr(holder, f"{MARK}{number}", True)
        self._end = "" if depth == 1 else f"#{depth}"
        self.instance = _bound_instance(view)
        self._function = _innermost(view)
        self._method = getattr(self._function, "__name__", "")
        self._may_be_async = self._method in _SYNC_IN_ASYNC_CLASSES
        name = _qualified(self._function)
        self._name = name if self.instance is not None else _functions.claim(name + self._end, holder)

    def __str__(self) -> str:
        return self._name

    def is_async(self, instance: Any) -> bool:
        """Whether the method, a plain function, gives a coroutine because the class of `instance` is async."""
        return self._may_be_async and getattr(instance, "view_is_async", False) is True

    def __call__(self, instance: Any, request: HttpRequest) -> str:
        """The group of a call with `request`, of the method of `instance` or, if it is None, of a function."""
        if instance is None:
            return self._name
        owner = instance if isinstance(instance, type) else type(instance)
        name = _class_name(owner, request)
        if self._method != "dispatch":
            name += f".{self._method}"
        found = getattr(owner, self._method, None)
        if _innermost(getattr(found, "__func__", found)) is not self._function:
            # Called by super(): another limit than that of the method which overrides this one.
            name += f"@{_qualified(self._function)}"
        return name + self._end


def _bound_instance(view: Any) -> Any:
    """The instance behind what Django's `method_decorator` makes for each call; None for other views."""
    while view is not None:
        if isinstance(view, partial) and isinstance(view.func, MethodType) and hasattr(view, "__wrapped__"):
            return view.func.__self__
        view = getattr(view, "__wrapped__", None)
    return None


def _innermost(view: Any) -> Any:
    """The view below every decorator; as_view()'s function, which looks like one, and bound methods stay."""
    while not isinstance(view, MethodType) and not hasattr(view, "view_class") and hasattr(view, "__wrapped__"):
        view = view.__wrapped__
    return view


def _qualified(view: Any) -> str:
    if hasattr(view, "view_class"):  # made by as_view()
        view = view.view_class
    if isinstance(view, partial):
        return f"{_qualified(_innermost(view.func))}.<partial>"
    if isinstance(view, MethodType):
        return f"{_qualified(type(view.__self__))}.{view.__name__}"
    named = view if hasattr(view, "__qualname__") else type(view)
    return f"{named.__module__}.{named.__qualname__}"


def _class_name(owner: type, request: HttpRequest) -> str:
    name = _qualified(owner)
    if "<locals>" not in name:
        return name
    # A class made in a function may be one of many of that name. Its route tells them apart in every process alike.
    match = getattr(request, "resolver_match", None)
    if match is not None:
        return f"{name}+{match.route}"
    with _class_lock:
        if owner not in _class_names:
            _class_names[owner] = _classes.claim(name, owner)
        return _class_names[owner]
