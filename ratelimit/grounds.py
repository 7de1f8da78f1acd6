"""What a limiter decides on: its store, its settings, its clock, and what it prepared from them.

Rules:
- Settings that were not given are the process's, looked up each time; and so is the store that they name.
- What was prepared is on the `shelf`. A change of settings begins another one: who holds on to anything of it looks whether it is
  the same still.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from time import time_ns
from typing import Any

from ratelimit import settings as settings_module
from ratelimit.compiling import mypyc_attr
from ratelimit.errors import ConfigurationError
from ratelimit.plan import Clock, Planner
from ratelimit.rules import Policy
from ratelimit.settings import Settings
from ratelimit.shelf import Shelf
from ratelimit.stores import open_store
from ratelimit.stores.base import Store


def system_clock() -> int:
    """The wall clock, on which the processes that share a store agree."""
    return time_ns() // 1000


@mypyc_attr(allow_interpreted_subclasses=True)
class Grounds:
    """A store and settings that may be looked up each time, a clock, and a shelf for what follows from them."""

    def __init__(self, store: Store | str | None, settings: Settings | None, clock: Clock, planner: Planner) -> None:
        given: Any = clock
        if type(given()) is not int:
            raise ConfigurationError(f"clock {clock!r} must give whole microseconds since the epoch, as an int")
        self._settings = settings
        self._clock = clock
        self._wall = clock is system_clock  # the same, without a call
        self._planner = planner
        self._opened: dict[str, Store] = {}
        self._opening = threading.Lock()
        self._store = open_store(store) if isinstance(store, str) else store
        self.shelf = self._empty_shelf()
        self._known = self.shelf.known  # a step nearer for checks
        self._changing = threading.RLock()  # a signal handler may reload the settings in the middle of a change
        _ = self.settings, self.store

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {type(self.store).__name__}>"

    @property
    def settings(self) -> Settings:
        """The settings that hold now."""
        return self._settings or settings_module.current()

    @property
    def store(self) -> Store:
        """The store that is used now."""
        if self._store is not None:
            return self._store
        url = self.settings.store
        return self._opened[url] if url in self._opened else self._open(url)

    @property
    def policies(self) -> Mapping[str, Policy]:
        """The policies of the file that the settings name, by name; `check` takes these names too."""
        return self.settings.policies

    def now(self) -> int:
        """The limiter's time: microseconds since the epoch."""
        return self._clock()

    def close(self) -> None:
        """Closes the store's connections."""
        self.store.close()

    async def aclose(self) -> None:
        """Closes the store's connections, those of the running event loop too."""
        await self.store.aclose()

    def settings_changed(self) -> None:
        """Forgets what follows from the settings."""
        with self._changing:  # two at once would leave the shelf of one with the rules of the other
            self.shelf = self._empty_shelf()
            self._known = self.shelf.known

    def forget_denials(self, callers: Iterable[str]) -> None:
        """Has the next checks of these callers ask the store, whatever it denied them before."""
        self.shelf.forget_denials(callers)

    def _follow_settings(self) -> None:
        if self._settings is None:
            self._watch = settings_module.Watch(self.settings_changed)
            settings_module.warn_of_unknown(os.environ)

    def _empty_shelf(self) -> Shelf:
        return Shelf(self._planner, None if self._wall else self._clock)

    def _open(self, url: str) -> Store:
        with self._opening:
            if url not in self._opened:
                try:
                    self._opened[url] = open_store(url)
                except ConfigurationError as error:
                    raise ConfigurationError(f"{settings_module.PREFIX}STORE: {error}") from error
            return self._opened[url]
