"""For tests of applications and of stores: a clock that tests move, an isolated limiter, and the store conformance suite.

`FakeClock` and `isolated` need nothing. The fixtures (`pytest_plugins = ["ratelimit.testing"]` in the root `conftest.py`) and
`StoreConformance` are here where pytest is installed. Nothing else in this package imports this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from ratelimit import process
from ratelimit import settings as settings_module
from ratelimit.engine import Limiter
from ratelimit.plan import Clock
from ratelimit.stores.base import Store
from ratelimit.stores.memory import MemoryStore

START = 1_800_000_000
"""Where `FakeClock` begins, in seconds since the epoch: a whole hour, so a window of any unit but days begins here too."""


class FakeClock:
    """A clock that stands still until a test moves it; called, it gives whole microseconds."""

    def __init__(self, start_seconds: float = START) -> None:
        self.now_us = round(start_seconds * 1_000_000)

    def __call__(self) -> int:
        return self.now_us

    def advance(self, seconds: float) -> None:
        """Moves on by `seconds` (back, if negative), to the microsecond."""
        self.now_us += round(seconds * 1_000_000)

    def set(self, seconds: float) -> None:
        """Moves to `seconds` since the epoch."""
        self.now_us = round(seconds * 1_000_000)


@contextmanager
def isolated(store: Store | None = None, clock: Clock | None = None, **settings: Any) -> Iterator[Limiter]:
    """A fresh limiter as the process's one until the block ends: nothing counted before or in it is seen outside.

    `store` is a new `MemoryStore` and `clock` a new `FakeClock` unless given; `settings` as in `Settings`.
    """
    before = process._limiter
    with settings_module.override(**settings):
        limiter = Limiter(MemoryStore() if store is None else store, clock=clock or FakeClock())
        process.set_limiter(limiter)
        try:
            yield limiter
        finally:
            process.set_limiter(before)


if find_spec("pytest") is not None:
    from ratelimit.conformance import CALLERS as CALLERS
    from ratelimit.conformance import FIVE_A_MINUTE as FIVE_A_MINUTE
    from ratelimit.conformance import Driver as Driver
    from ratelimit.conformance import Holder as Holder
    from ratelimit.conformance import PlacesConformance as PlacesConformance
    from ratelimit.conformance import StoreConformance as StoreConformance
    from ratelimit.conformance import driver as driver
    from ratelimit.conformance import fake_clock as fake_clock
    from ratelimit.conformance import holder as holder
    from ratelimit.conformance import limiter as limiter
