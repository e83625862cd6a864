"""Decoding pages to Arrow columns, with this package's kernels and with the driver.

The rival is the driver's compiled row parser followed by `pa.array`, on the same pages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pyarrow as pa

from cdc_reader.decoding import NAME, decode, python
from tests.benchmarks.figure import Figure
from tests.benchmarks.pages import RecordedPage, flat_page, rich_pages
from tests.benchmarks.rivals import arrays_of
from tests.benchmarks.turns import take_turns

FLAT_ROWS = 5_000
TARGETS = {"decode_flat": 15, "decode_rich": 8}


def by_driver(page: RecordedPage) -> list[pa.Array]:
    """Decode the page with the driver's compiled row parser and `pa.array`."""
    return arrays_of(page.by_driver(), [column.type for column in page.columns])


WAYS: dict[str, Callable[[RecordedPage], object]] = {
    "driver": by_driver,
    "python": lambda page: python.decode(page.received()),
    NAME: lambda page: decode(page.received()),
}


def figures(times: int) -> Iterator[Figure]:
    """Measure the compiled kernel, and the Python kernel for comparison."""
    for name, pages in {"decode_flat": [flat_page(FLAT_ROWS)], "decode_rich": rich_pages()}.items():
        for page in pages:
            check(page)
        rows = sum(decode(page.received()).num_rows for page in pages)
        rates = {way: rows / seconds for way, seconds in medians(pages, times).items()}
        against = "the driver's compiled rows + pa.array"
        yield Figure(name, rates[NAME], "rows/s", rates["driver"], against, at_least=TARGETS[name])
        if NAME != "python":
            yield Figure(f"{name}_python", rates["python"], "rows/s", rates["driver"], against)


def check(page: RecordedPage) -> None:
    """Check that the kernel and the driver return the same columns.

    Sets are not compared, because the driver sorts them.
    """
    ours = decode(page.received())
    for column, mine, theirs in zip(page.columns, ours.columns, by_driver(page), strict=True):
        if "set<" not in str(column.type) and not mine.equals(theirs):
            sys.exit(f"{column.name} {column.type}: kernel and driver differ")


def medians(pages: list[RecordedPage], times: int) -> dict[str, float]:
    """Return the median time that each entry of `WAYS` takes for all pages, in seconds."""
    ways = {way: _over(pages, run) for way, run in WAYS.items()}
    return {way: turn.wall for way, turn in take_turns(ways, 2 * times).items()}


def _over(pages: list[RecordedPage], run: Callable[[RecordedPage], object]) -> Callable[[], None]:
    def all_pages() -> None:
        for page in pages:
            run(page)

    return all_pages
