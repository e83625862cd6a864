"""Runs the benchmarks. ``make bench`` calls this program.

``python -m tests.benchmarks [--times N] [--scylla HOST:PORT] [NAME ...]`` prints a table, writes
``build/bench.json`` and draws ``build/bench.svg``. If names are given, only these benchmarks run,
and ``build/bench.json`` keeps the earlier results of the other benchmarks. The exit status is 1 if
a target was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks.chart import chart
from tests.benchmarks.figure import Figure

BUILD = Path("build")
NAMES = (
    "decode",
    "changes",
    "read",
    "snapshot",
    "peers",
    "consume",
    "replicate",
    "cold_start",
    "spark",
    "mirror",
    "growth",
    "filters",
    "idle",
    "scale",
    "ways",
    "memory",
    "latency",
)
"""The modules in `suites`, in the order in which they run."""


def main() -> int:
    """Run the requested benchmarks."""
    given = _arguments()
    found: list[Figure] = []
    loads = {}
    for name in given.names or NAMES:
        before = os.getloadavg()[0]
        server = (given.scylla,) if name == "ways" else ()
        figures = []
        for figure in import_module(f"tests.benchmarks.suites.{name}").figures(
            given.times, *server
        ):
            figures.append(figure)
            print(f"{figure.name}: {figure.value:,.4g} {figure.unit}", file=sys.stderr, flush=True)
        loads[name] = [before, os.getloadavg()[0]]
        _write(figures, loads[name])
        found += figures
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(_table([figure for figure in found if figure.cell is None], loads))
    if ways := [figure for figure in found if figure.cell is not None]:
        console.print(_ways(ways))
    return not all(figure.is_met for figure in found)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the project against its rivals.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--times", type=int, default=5, help="turns of each rival (%(default)s)")
    parser.add_argument(
        "--scylla", metavar="HOST:PORT", help="measure the ways to read a window there"
    )
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"{', '.join(sorted(unknown))}: expected some of {', '.join(NAMES)}")
    if given.times < 1:
        parser.error(f"--times {given.times}: expected at least 1, and 5 for figures to publish")
    return given


def _write(found: Iterable[Figure], load: Sequence[float]) -> None:
    """Write the results, with the machine's load before and after each measurement."""
    BUILD.mkdir(exist_ok=True)
    path = BUILD / "bench.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    machine = {"load": load, "processors": os.cpu_count()}
    kept.update({figure.name: {**figure.to_json(), **machine} for figure in found})
    path.write_text(json.dumps(kept, indent=2) + "\n")
    (BUILD / "bench.svg").write_text(chart(kept))


def _table(found: Iterable[Figure], loads: Mapping[str, list[float]]) -> Table:
    told = "; ".join(f"{name} {low:.1f} to {high:.1f}" for name, (low, high) in loads.items())
    table = Table(caption=f"{os.cpu_count()} processors; load while measuring: {told}")
    for title in ("figure", "value", "unit", "rival", "ratio", "target", "met", "against", "note"):
        table.add_column(title, justify="right" if title in ("value", "rival", "ratio") else "left")
    for figure in found:
        table.add_row(*_cells(figure))
    return table


def _ways(found: Iterable[Figure]) -> Table:
    """Return a table of the milliseconds and queries that a window takes, by strategy."""
    cells = {figure.cell: figure for figure in found if figure.cell is not None}
    columns = list(dict.fromkeys(column for _, column in cells))
    table = Table("one window, ms (queries)", *columns)
    for row in dict.fromkeys(row for row, _ in cells):
        told = (cells[row, column] for column in columns)
        table.add_row(row, *(f"{_short(f.value)} ({f.note.split()[0]})" for f in told))
    return table


def _cells(figure: Figure) -> Iterator[str]:
    yield figure.name
    yield _short(figure.value)
    yield figure.unit
    yield _short(figure.rival)
    yield _short(figure.ratio)
    yield figure.target
    yield ("yes" if figure.is_met else "[bold red]no[/]") if figure.target else ""
    yield figure.against
    yield figure.note


def _short(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


if __name__ == "__main__":
    sys.exit(main())
