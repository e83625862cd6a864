"""The number of queries in flight adapts to delays, page sizes and overload."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from attrs import field, frozen

from cdc_reader import _stats
from cdc_reader.reading import tuning
from cdc_reader.reading.windows.fetch import read_ahead
from cdc_reader.reading.windows.in_flight import InFlight

PAGE = pa.record_batch({"cells": [bytes(1 << 20)]})


@frozen
class Pages:
    """Queries of one page each; `seconds` is how long each page is waited for."""

    page: pa.RecordBatch
    seconds: float = 0.0
    overloads: int = 0
    requested: list[int] = field(factory=list)

    def read(self, task: int) -> Iterator[pa.RecordBatch]:
        self.requested.append(task)
        return self._pages()

    def most_in_flight(self, in_flight: InFlight, tasks: int) -> int:
        """Read the tasks, and return how many queries were in flight at a time at the end."""
        return max(
            len(self.requested) - done
            for done, _ in read_ahead(self.read, range(tasks), in_flight)
            if done > tasks // 2
        )

    def _pages(self) -> Iterator[pa.RecordBatch]:
        _stats._waited.set(_stats.waited() + self.seconds)
        for _ in range(self.overloads):
            _stats.count_overload()
        yield self.page


SMALL = pa.record_batch({"cells": [b""]})


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        (Pages(SMALL), tuning.FIRST_IN_FLIGHT),
        (Pages(SMALL, seconds=0.1), tuning.MOST_IN_FLIGHT),
        (Pages(SMALL, seconds=0.1, overloads=1), 1),
        (Pages(PAGE, seconds=0.1), tuning.HELD_BYTES // PAGE.nbytes),
        (Pages(pa.record_batch({"cells": [bytes(tuning.HELD_BYTES)]})), 1),
    ],
    ids=["prompt", "late", "overloaded", "large", "huge"],
)
def test_queries_in_flight(pages: Pages, expected: int) -> None:
    """Late pages raise the number, and overload and large pages lower it."""
    assert pages.most_in_flight(InFlight(), 100) == expected


def test_the_number_recovers_after_large_pages() -> None:
    """Large pages lower the number only while they are recent."""
    in_flight = InFlight()
    Pages(PAGE, seconds=0.1).most_in_flight(in_flight, 100)
    assert Pages(SMALL).most_in_flight(in_flight, 200) == tuning.MOST_IN_FLIGHT
