"""A picture of the figures: one panel for each kind, the engine in blue, its peers in other colours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

OURS, THEIRS, INK = "#0b6e99", "#b8bec4", "#222222"
LINES = {"redis.asyncio INCR": "#999999", "limits, fixed window": "#c98b2b", "throttled-py, GCRA": "#6a994e"}

BARS = (
    ("memory", "hot key", "In memory", "log"),
    ("memory", "async, hot key", "In memory, asyncio", "log"),
    ("keys", "each one's weight", "In memory, weight of a caller", "linear"),
    ("redis sync", "hot key, same core", "Redis, client and server on one core", "linear"),
    ("redis sync", "hot key, cross core", "Redis, client and server on a core each", "linear"),
    ("redis sync", "four rules over one, same core", "Redis, four rules in place of one", "linear"),
    ("ASGI", "bare ASGI, requests a second", "ASGI, requests a second", "linear"),
    ("ASGI", "Starlette, requests a second", "Starlette, requests a second", "linear"),
    ("Django", "added to a view, in memory", "Django, added to a view, in memory", "linear"),
    ("Django", "added to a view, on Redis", "Django, added to a view, on Redis", "linear"),
)
"""Area, end of the row's title, the panel's title, scale."""
CURVES = (
    ("redis asyncio", "Redis, asyncio, checks over INCR", "tasks", False),
    ("cluster asyncio", "Cluster of three, asyncio, checks over INCR", "tasks", False),
    ("arrivals", "Open arrivals, 99th percentile in ms", "offered a second", True),
)
Found = dict[str, Any]


def draw(figures: Path, picture: Path) -> None:
    """Draws what a file of figures has; panels without any are left out."""
    found = json.loads(figures.read_text())
    rows: list[Found] = found["rows"]
    bars = [(panel, row) for panel in BARS for row in rows if row["area"] == panel[0] and _is_titled(row, panel[1])]
    curves = [(panel, several) for panel in CURVES if len(several := [r for r in rows if r["area"] == panel[0]]) > 1]
    count = len(bars) + len(curves)
    if not count:
        return
    lines = (count + 1) // 2
    sheet = Figure(figsize=(14, 3.7 * lines))
    panels = list(sheet.subplots(lines, 2, squeeze=False).flat)
    for axes, (bar, row) in zip(panels, bars, strict=False):
        _bars(axes, row, *bar[2:])
    for axes, (curve, several) in zip(panels[len(bars) :], curves, strict=False):
        _curves(axes, several, *curve[1:])
    for axes in panels[count:]:
        axes.set_axis_off()
    sheet.suptitle(_head(found["machine"]), fontsize=9, color=INK)
    sheet.tight_layout(rect=(0, 0, 1, 1 - 0.35 / (3.7 * lines)), h_pad=2.0)
    picture.parent.mkdir(parents=True, exist_ok=True)
    sheet.savefig(picture, dpi=110)


def _is_titled(row: Found, title: str) -> bool:
    return bool(row["title"] == title or row["title"].endswith(f" callers, {title}"))


def _bars(axes: Axes, row: Found, title: str, scale: str) -> None:
    shown = [figure for figure in row["figures"] if figure["value"]][::-1]
    names = [figure["name"] for figure in shown]
    middles = [figure["value"]["median"] for figure in shown]
    spread = [
        [max(0.0, figure["value"]["median"] - figure["value"]["low"]) for figure in shown],
        [max(0.0, figure["value"]["high"] - figure["value"]["median"]) for figure in shown],
    ]
    colours = [OURS if figure["ours"] else THEIRS for figure in shown]
    axes.barh(names, middles, xerr=spread, color=colours, error_kw={"elinewidth": 0.8, "ecolor": INK}, height=0.7)
    for place, figure in enumerate(shown):
        text, end = _number(middles[place]), (figure["value"]["high"], place)
        axes.annotate(text, end, xytext=(4, 0), textcoords="offset points", fontsize=8, va="center")
    axes.margins(x=0.12)
    axes.set_xscale(scale)
    axes.set_xlim(left=1 if scale == "log" else 0)
    axes.set_title(f"{title} ({'less' if row['less'] else 'more'} is better)", fontsize=10, loc="left")
    axes.set_xlabel(_unit(row), fontsize=8)
    axes.tick_params(labelsize=8)
    _plain(axes)


def _curves(axes: Axes, rows: list[Found], title: str, what: str, less: bool) -> None:
    places = [int(row["title"].split()[0].replace(",", "")) for row in rows]
    for name in [figure["name"] for figure in rows[0]["figures"]]:
        values = [next((f["value"] for f in row["figures"] if f["name"] == name), None) for row in rows]
        points = [(place, value["median"]) for place, value in zip(places, values, strict=True) if value]
        is_ours = name.startswith("ratelimit")
        if points and (is_ours or name in LINES):
            style = "-" if is_ours and "category" not in name else "--" if is_ours else "-"
            colour = OURS if is_ours else LINES[name]
            axes.plot(*zip(*points, strict=True), style, color=colour, marker="o", markersize=4, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(places, [f"{place:,}" for place in places])
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: _number(value))
    axes.set_title(f"{title} ({'less' if less else 'more'} is better)", fontsize=10, loc="left")
    axes.set_xlabel(what, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.legend(fontsize=8, frameon=False)
    _plain(axes)


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)


def _unit(row: Found) -> str:
    if row["unit"] == "x":
        return f"times {row['baseline']}" if row["baseline"] else "times its own baseline"
    return f"{row['unit']} beyond {row['baseline']}" if row["baseline"] else str(row["unit"])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _head(facts: Found) -> str:
    versions = facts["packages"]
    names = ("ratelimit-engine", "limits", "throttled-py", "pyrate-limiter", "django-ratelimit", "slowapi", "redis")
    packages = ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
    where = f"{facts['python']}, {facts['server']}, {facts['processor']}; {facts['date'][:10]}, {facts['run']} run"
    return f"{packages}\n{where}"
