"""What was measured: rows of figures, as a table to read and as JSON to keep."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.checks import Goal
from benchmarks.rounds import Spread, Timing

OURS, THEIRS = "*", " "
Timed = tuple[Timing, list[Timing]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One contestant's figure in a row. `note` says what else is to be known, such as why there is no figure."""

    name: str
    value: Spread | None
    ours: bool = False
    goal: Goal | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of one kind. `unit` is what they are in (`x` is times the baseline's), `less` whether less is better."""

    area: str
    title: str
    unit: str
    less: bool
    figures: Sequence[Figure] = field(repr=False)
    baseline: str = ""


def cost(area: str, title: str, timed: Timed, free: float = 0.0) -> Row:
    """What a check costs, in times the baseline's seconds: less is better. So many times are not the check's own."""
    base, timings = timed
    figures = [_figure(one, lambda one: Spread.of(one.ratios).less(free)) for one in timings]
    return Row(area, title, "x", True, figures, _took(base))


def speed(area: str, title: str, timed: Timed) -> Row:
    """How many checks are done where the baseline does one: more is better."""
    base, timings = timed
    figures = [_figure(one, lambda one: Spread.of(one.ratios).inverted()) for one in timings]
    return Row(area, title, "x", False, figures, _took(base))


def added(area: str, title: str, timed: Timed) -> Row:
    """How many microseconds a call takes beyond the baseline's: less is better."""
    base, timings = timed
    figures = [_figure(one, lambda one: Spread.of(one.added).scaled(1e6)) for one in timings]
    return Row(area, title, "us", True, figures, _took(base))


def noted(row: Row, notes: dict[str, str]) -> Row:
    """The row with something to be known of each figure, by its name."""
    figures = [replace(one, note=", ".join(filter(None, (one.note, notes.get(one.name))))) for one in row.figures]
    return replace(row, figures=figures)


def _figure(timing: Timing, spread: Callable[[Timing], Spread]) -> Figure:
    one = timing.contestant
    if timing.error is not None:
        return Figure(one.name, None, one.ours, one.goal, f"{type(timing.error).__name__}: {timing.error}")
    failed = f"{len(one.failed)} checks were decided without the store" if one.failed else ""
    return Figure(one.name, spread(timing), one.ours, one.goal, failed)


def _took(base: Timing) -> str:
    seconds = Spread.of(base.seconds).median
    took = f"{seconds * 1e6:.3g} us" if seconds >= 1e-6 else f"{seconds * 1e9:.0f} ns"
    return f"{base.contestant.name}, {took}"


def table(row: Row) -> str:
    """The row as text: the median, the quartiles, the goals."""
    of = {"x": f"times {row.baseline}" if row.baseline else "times its own baseline"}
    beside = f"{row.unit} beyond {row.baseline}" if row.baseline else row.unit
    lines = [
        "",
        f"{row.area}: {row.title}",
        f"  {'less' if row.less else 'more'} is better; {of.get(row.unit, beside)}",
    ]
    for figure in row.figures:
        lines.append(f"  {OURS if figure.ours else THEIRS} {figure.name:<40} {_shown(figure, row.unit)}".rstrip())
    return "\n".join(lines)


def _shown(figure: Figure, unit: str) -> str:
    text = f"{'-':>9} {unit:<4} {'':<23}"
    if (value := figure.value) is not None:
        spread = f"{number(value.low):>9} .. {number(value.high):<9}" if value.low < value.high else ""
        text = f"{number(value.median):>9} {unit:<4} {spread:<23}"
    if figure.goal is not None:
        text += f" reach {number(figure.goal.reach)}, go for {number(figure.goal.go_for)};"
    return f"{text} {figure.note}".rstrip("; ")


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write_json(path: Path, rows: Iterable[Row], machine: dict[str, Any]) -> None:
    """Everything that was measured, and on what."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {"machine": machine, "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(found, indent=1) + "\n")
