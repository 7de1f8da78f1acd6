"""What is timed: a statement, as an application would write it, done n times by one task or by several."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any


@dataclass(frozen=True, slots=True)
class Goal:
    """The figure to reach, and the one to go for after that."""

    reach: float
    go_for: float


@dataclass(frozen=True, slots=True)
class Contestant:
    """Who is timed: `run(n)` does n checks; where it gives an awaitable, that does them.

    `failed` gets an entry for each check that was no check.
    """

    name: str
    run: Callable[[int], Awaitable[None] | None]
    ours: bool = False
    goal: Goal | None = None
    failed: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Check:
    """One check of one product: a statement and the names in it.

    In the statement `i` counts the checks, so that `callers[i & 1023]` is another caller every time, and `failed` is the
    contestant's list of failed ones.
    """

    name: str
    statement: str
    names: dict[str, Any] = field(repr=False)
    ours: bool = False
    goal: Goal | None = None

    def towards(self, goal: Goal) -> Check:
        """The same check with that goal, if it is ours."""
        return replace(self, goal=goal if self.ours else None)

    def alone(self) -> Contestant:
        """One check after the other."""
        awaits = "await " in self.statement
        failed: list[int] = []
        run = self._compiled(f"{'async ' if awaits else ''}def work(n):", "for i in range(n):", failed)
        return Contestant(self.name, run, self.ours, self.goal, failed)

    def once(self) -> tuple[Callable[[int], Coroutine[Any, Any, None]], list[int]]:
        """A coroutine function that does the i-th check, and the list of those that failed."""
        failed: list[int] = []
        return self._compiled("async def work(i):", "if True:", failed), failed

    def by_tasks(self, many: int) -> Contestant:
        """`many` tasks at once, each of which asks again as soon as it was answered (a closed loop)."""
        failed: list[int] = []
        work = self._compiled("async def work(left):", "for i in left:", failed)

        async def run(n: int) -> None:
            left = iter(range(n))
            await asyncio.gather(*(work(left) for _ in range(min(many, n))))

        return Contestant(self.name, run, self.ours, self.goal, failed)

    def by_threads(self, many: int) -> Contestant:
        """`many` threads at once, each with its share. They live on between slices: starting one is not measured."""
        failed: list[int] = []
        work = self._compiled("def work(n):", "for i in range(n):", failed)
        shares: SimpleQueue[int] = SimpleQueue()
        done: SimpleQueue[None] = SimpleQueue()

        def serve() -> None:
            while True:
                work(shares.get())
                done.put(None)

        for _ in range(many):
            threading.Thread(target=serve, daemon=True).start()

        def run(n: int) -> None:
            for number in range(many):
                shares.put(n // many + (number < n % many))
            for _ in range(many):
                done.get()

        return Contestant(f"{self.name}, {many} threads", run, self.ours, self.goal, failed)

    def _compiled(self, head: str, each: str, failed: list[int]) -> Callable[..., Any]:
        """No call and no closure around the statement: what it costs is what is measured."""
        source = f"{head}\n    {each}\n        {self.statement}\n"
        names = {**self.names, "failed": failed}
        exec(compile(source, f"<{self.name}>", "exec"), names)
        work: Callable[..., Any] = names["work"]
        return work
