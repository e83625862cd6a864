"""Converts the batches of a followed log or of a snapshot to a format.

The delivery that ends a window or a range still comes after all rows that its checkpoint covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby

import pyarrow as pa
from attrs import evolve, frozen

from cdc_reader.changes.frames import ChangeFormat, format_of, project, snapshot_format_of
from cdc_reader.changes.frames.table_rows import SplitRows
from cdc_reader.cql.schema import LogSchema
from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete
from cdc_reader.reading.ports import TTLS
from cdc_reader.reading.snapshot import RangeComplete, SnapshotDelivery


@frozen
class Formatting:
    """Converts deliveries to a format."""

    _wanted: ChangeFormat

    @property
    def is_tolerant(self) -> bool:
        """Whether rows with cells that cannot be converted are accepted."""
        return self._wanted.on_bad_record != "fail"

    @property
    def cells(self) -> Sequence[str]:
        """What a read of the base table must give of its cells, see `SnapshotTable.rows`."""
        return TTLS if self._wanted.include_delta else ()

    def check(self, schema: LogSchema, *, snapshot: bool) -> None:
        """Raise an error if rows of the log cannot be converted to the format.

        If `snapshot` is True, rows of a snapshot must be convertible too.
        """
        make = snapshot_format_of if snapshot else format_of
        make(self._wanted, self._part(schema))

    def log(self, deliveries: Iterable[Delivery]) -> Iterator[Delivery]:
        """Convert rows of the log. Late rows come after the other rows of their window."""
        for are_ends, part in groupby(deliveries, lambda each: isinstance(each, WindowComplete)):
            if are_ends:
                yield from part
                continue
            late: list[RowsRead] = []  # there are few: see `LateRows`
            yield from self._converted(_on_time(part, late))
            yield from self._converted(late)

    def snapshot(self, deliveries: Iterable[SnapshotDelivery]) -> Iterator[SnapshotDelivery]:
        """Convert rows of the base table to inserts."""
        split = SplitRows()
        for delivery in deliveries:
            if isinstance(delivery, RangeComplete):
                split.end(delivery.reading)
                yield delivery
                continue
            schema = self._part(delivery.schema)
            shape = snapshot_format_of(self._wanted, schema)
            rows = split.feed(delivery, schema.base)
            for batch in shape.snapshot(rows, shape.schema, delivery.position):
                yield evolve(delivery, batch=batch)

    def _converted(self, reads: Iterable[RowsRead]) -> Iterator[RowsRead]:
        for _, group in groupby(reads, lambda read: id(read.schema)):
            yield from self._of_one_schema(group)

    def _of_one_schema(self, reads: Iterator[RowsRead]) -> Iterator[RowsRead]:
        first = last = next(reads)

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal last
            for last in chain([first], reads):
                yield last.batch

        shape = format_of(self._wanted, self._part(first.schema))
        for batch in shape.convert(batches(), shape.schema):
            yield evolve(last, batch=batch)

    def _part(self, schema: LogSchema) -> LogSchema:
        return project(schema, self._wanted.columns)


def _on_time(reads: Iterable[Delivery], late: list[RowsRead]) -> Iterator[RowsRead]:
    """Yield the rows that are not late, and add late rows to `late`.

    Late rows may arrive between two pages of a record, but the rows of a record must stay together.
    """
    for read in reads:
        if isinstance(read, WindowComplete):
            continue
        if read.late:
            late.append(read)
        else:
            yield read
