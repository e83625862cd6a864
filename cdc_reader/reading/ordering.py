"""Sorts log rows by write time."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader.cql.schema import TIME

_TIME_FIELDS = ((15, 18), (9, 13), (0, 8))
"""Positions of the time digits in the text of a time UUID, most significant first."""


class ByWriteTime:
    """Collects batches of one schema, each stream in order, and yields their rows by write time.

    The sort is stable: rows of one microsecond keep the order in which they were added, so a
    record stays whole and a stream's rows keep their order.
    """

    def __init__(self) -> None:
        self.size = 0
        """Bytes held."""
        self._batches: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch."""
        self._batches.append(batch)
        self.size += batch.nbytes

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order of write time, in batches of at most `rows`."""
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        order = pc.sort_indices(_time(table.column(TIME)))  # stable
        for start in range(0, len(order), rows):
            part = table.take(order.slice(start, rows))
            yield from part.combine_chunks().to_batches()


def _time(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the 15 hexadecimal digits of each UUID's time; as text they sort as the times do."""
    fields = (pc.utf8_slice_codeunits(column, start, stop) for start, stop in _TIME_FIELDS)
    return pc.binary_join_element_wise(*fields, "")
