"""The leases that one event loop holds, renewed by one task.

Rules:
- A round takes a third of a lease. The task wakes `SLICES` times in a round and renews the next part of what is held, so that
  the store is never asked for everything at once, and the loop is never busy for long. A new lease waits for half a round or
  more, in the part of those that holds the least.
- No clock is looked at: one that is put right makes nothing late. What comes late comes late by little: a lease lasts three
  rounds.
- What could not be renewed is tried again when the task wakes next, and so is the rest of that part.
- The task lives while something is held. It belongs to nobody's request: it has an empty context.
"""

from __future__ import annotations

import logging
from asyncio import Task, get_running_loop, sleep
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Final, Generic, TypeVar

SLICES: Final = 10
LEASE_IN_ROUNDS: Final = 3
AT_ONCE: Final = 500
"""Leases that are renewed together: other work of the loop comes between."""

T = TypeVar("T")

logger = logging.getLogger("ratelimit")


class Renewals(Generic[T]):
    """What is held in the running loop. `renew` is given some of it, and gives back what it could not renew."""

    def __init__(self, renew: Callable[[Sequence[T]], Awaitable[Sequence[T]]], lease_seconds: float) -> None:
        self.pause = lease_seconds / LEASE_IN_ROUNDS / SLICES
        self._renew = renew
        self._slices: list[dict[T, None]] = [{} for _ in range(SLICES)]
        self._slice_of: dict[T, dict[T, None]] = {}
        self._next = 0
        self._task: Task[None] | None = None

    def __len__(self) -> int:
        """How many leases are held."""
        return len(self._slice_of)

    def add(self, lease: T) -> None:
        """Has `lease` renewed from now on."""
        later = [(self._next - back) % SLICES for back in range(1, SLICES // 2 + 1)]
        self._put(lease, min(later, key=lambda index: len(self._slices[index])))
        if self._task is None or self._task.done():
            self._task = get_running_loop().create_task(self._run(), name="ratelimit renewals", context=Context())

    def discard(self, lease: T) -> None:
        """Lets go of `lease`."""
        part = self._slice_of.pop(lease, None)
        if part is not None:
            del part[lease]
        if not self._slice_of and self._task is not None:
            self._task.cancel()
            self._task = None

    async def turn(self) -> None:
        """Renews the part whose turn it is."""
        due = list(self._slices[self._next])
        self._next = (self._next + 1) % SLICES
        while due:
            missed = await self._renew(due[:AT_ONCE])
            due = due[AT_ONCE:]
            if missed:
                missed, due = [*missed, *due], []
            for lease in missed:
                if lease in self._slice_of:  # else given back meanwhile
                    del self._slice_of[lease][lease]
                    self._put(lease, self._next)

    def _put(self, lease: T, index: int) -> None:
        part = self._slice_of[lease] = self._slices[index]
        part[lease] = None

    async def _run(self) -> None:
        while True:
            await sleep(self.pause)
            try:
                await self.turn()
            except Exception:
                logger.exception("leases could not be renewed; they are tried again")
