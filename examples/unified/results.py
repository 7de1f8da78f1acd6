"""What came of the plan's steps, and the table that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plan import FIRST_WAIT, Step

COLUMNS = ("protocol", "caller", "category", "asked", "allowed", "denied", "first wait", "")
NUMBERS = COLUMNS[3:7]


@dataclass(frozen=True)
class Result:
    """The wait that each call of a step was told, in turn; None for those let through."""

    step: Step
    waits: Sequence[int | None]

    @property
    def denied(self) -> list[int]:
        return [wait for wait in self.waits if wait is not None]

    @property
    def is_right(self) -> bool:
        """Whether exactly the calls that should pass did, all of them before the first denial."""
        return list(self.waits) == [None] * self.step.allowed + [FIRST_WAIT] * self.step.denied

    def row(self) -> tuple[str, ...]:
        step, denied = self.step, self.denied
        counts = (len(self.waits), len(self.waits) - len(denied), len(denied))
        wait = f"{denied[0]} s" if denied else "-"
        verdict = "ok" if self.is_right else f"WRONG: {step.allowed} should pass, the others wait {FIRST_WAIT} s"
        return (step.protocol, step.caller, step.category, *map(str, counts), wait, verdict)


def table(results: Sequence[Result]) -> str:
    """A line for each step under the names of the columns."""
    rows = [COLUMNS, *(result.row() for result in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if name in NUMBERS else cell.ljust(width)
        for name, cell, width in zip(COLUMNS, row, widths, strict=True)
    ]
    return "  ".join(cells).rstrip()
