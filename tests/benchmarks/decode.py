"""How fast pages become Arrow columns: our kernels against the driver's compiled row parser
followed by `pa.array`. Run it as ``python -m tests.benchmarks.decode [repetitions]``.

The rivals take turns on the same pages in one process, so that what else the machine does weighs
on each alike; the figure of each is the median of its turns.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import pyarrow as pa

from cdc_reader.kernel import NAME, decode, python
from tests.benchmarks.pages import Page, flat_page, rich_pages
from tests.benchmarks.rivals import arrays_of

FLAT_ROWS = 5_000
TARGETS = {"decode_flat": 15, "decode_rich": 8}
"""Times as many rows a second as the driver and `pa.array`."""


def by_driver(page: Page) -> list[pa.Array]:
    """The rival."""
    return arrays_of(page.by_driver(), [column.type for column in page.columns])


WAYS: dict[str, Callable[[Page], object]] = {
    "driver": by_driver,
    "python": lambda page: python.decode(page.body, page.columns),
    NAME: lambda page: decode(page.body, page.columns),
}


def check(page: Page) -> None:
    """Both sides must have done the same work; sets alone differ, which the driver sorts."""
    ours = decode(page.body, page.columns)
    for column, mine, theirs in zip(page.columns, ours.columns, by_driver(page), strict=True):
        if "set<" not in str(column.type) and not mine.equals(theirs):
            sys.exit(f"{column.name} {column.type}: kernel and driver differ")


def medians(pages: list[Page], repetitions: int) -> dict[str, float]:
    """The seconds each way takes for all pages."""
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(repetitions):
        for way, run in WAYS.items():
            start = time.perf_counter()
            for page in pages:
                run(page)
            taken[way].append(time.perf_counter() - start)
    return {way: statistics.median(times) for way, times in taken.items()}


def main() -> None:
    """Print a line for each figure and way."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    for figure, pages in {
        "decode_flat": [flat_page(FLAT_ROWS)],
        "decode_rich": rich_pages(),
    }.items():
        rows = sum(decode(page.body, page.columns).num_rows for page in pages)
        for page in pages:
            check(page)
        times = medians(pages, repetitions)
        for way, seconds in times.items():
            ratio = times["driver"] / seconds
            target = f" (at least {TARGETS[figure]})" if way == "cython" else ""
            print(f"{figure:12} {way:8} {rows / seconds:12,.0f} rows/s {ratio:7.1f}{target}")


if __name__ == "__main__":
    main()
