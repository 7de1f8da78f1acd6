"""What the compiler is told. It means nothing to Python: the package needs neither a compiler nor a part of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_):
        """The class as it is."""
        return lambda cls: cls


__all__ = ["Unchecked", "mypyc_attr"]


class Unchecked(Protocol):
    """What nothing is. Beside a type, as in `int | Unchecked`, it leaves it to us to look at what is given, and to say what
    is wrong in our own words; compiled code would raise a TypeError."""

    def unchecked(self) -> NoReturn: ...
