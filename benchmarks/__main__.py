"""Runs the benchmarks: `python -m benchmarks`, `--quick` for two minutes, `--only memory,redis` for some of them.

A long run of everything writes `benchmarks/results/latest.json` and `docs/benchmarks.png`. Any other one writes its figures
beside them, as `partial`, and leaves those alone.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from importlib.util import find_spec
from pathlib import Path

from benchmarks.areas import AREAS, measure_area
from benchmarks.machine import head, machine
from benchmarks.report import Row, write_json
from benchmarks.setting import Setting

HERE = Path(__file__).parent


def main() -> int:
    options = _options()
    setting = Setting(quick=options.quick, once=options.once, program=options.server)
    facts = machine(setting)
    print(head(facts), flush=True)
    rows, failed, started = [], [], time.monotonic()
    for area in options.only:
        try:
            rows += measure_area(area, setting)
        except Exception:
            failed.append(area)
            traceback.print_exc()
    facts["seconds"] = round(time.monotonic() - started)
    whole = setting.long and list(options.only) == list(AREAS) and not failed
    _keep(rows, facts, options.output, whole)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="nox -s bench --", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, in two minutes")
    parser.add_argument("--once", action="store_true", help="everything once: shows that it runs, measures nothing")
    parser.add_argument("--only", type=_areas, default=AREAS, help=f"beginnings of names, of {', '.join(AREAS)}")
    parser.add_argument("--server", choices=("valkey", "redis"), default="valkey", help="of the wheel, or on the PATH")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="the folder for the figures")
    return parser.parse_args()


def _areas(text: str) -> list[str]:
    wanted = [word.strip().replace("-", "_") for word in text.split(",")]
    for word in wanted:
        if not any(area.startswith(word) for area in AREAS):
            raise argparse.ArgumentTypeError(f"{word!r} begins none of {', '.join(AREAS)}")
    return [area for area in AREAS if area.startswith(tuple(wanted))]


def _keep(rows: list[Row], facts: dict[str, object], folder: Path, whole: bool) -> None:
    figures = folder / ("latest.json" if whole else "partial.json")
    chart = HERE.parent / "docs" / "benchmarks.png" if whole else folder / "partial.png"
    write_json(figures, rows, facts)
    print(f"\n{facts['seconds']} s; figures: {figures}")
    if find_spec("matplotlib"):
        from benchmarks.chart import draw

        draw(figures, chart)
        print(f"chart: {chart}")


if __name__ == "__main__":
    sys.exit(main())
