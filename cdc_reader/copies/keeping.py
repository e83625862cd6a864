"""Keeps a copy current: reads the rows of a table and then its log, and commits them in parts."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Protocol

import pyarrow as pa
from attrs import define, field

from cdc_reader._time import Moment
from cdc_reader.changes.frames import ChangeFormat
from cdc_reader.changes.frames.changes import ChangesFormat
from cdc_reader.copies.rereading import Rereading
from cdc_reader.copies.table_copy import TableCopy
from cdc_reader.copies.upkeep import EVERY
from cdc_reader.cql.schema import TableSchema
from cdc_reader.reader import CdcReader
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import RowsRead, WindowComplete
from cdc_reader.reading.snapshot import RangeComplete, SnapshotRows

BYTES, SECONDS = 64 * 1024 * 1024, 10.0
"""A commit is due when this many bytes of rows are held, or this long after the last one."""
_FORMAT = ChangeFormat(include_delta=True, preimages="none", range_deletes="emit")


class Progress(Protocol):
    """Is told what has been committed."""

    def committed(self, position: Checkpoint, rows: int, changes: int) -> None:
        """Take note of a commit with this many rows of the snapshot, or changes."""
        ...


def keep_current(
    reader: CdcReader, copy: TableCopy, until: Moment | None, progress: Progress
) -> None:
    """Bring the copy up to `until`, or follow the table until the reader is stopped.

    A new copy begins with the existing rows of the table. Whatever was read completely is committed
    before the function returns, also if the reader is stopped.
    """
    start = reader.table.begin_snapshot() if copy.position is None else copy.position
    # First, because it raises an error if the table or its log cannot be followed.
    deliveries = reader.follow_change_batches(start, until, _FORMAT, snapshot="initial")
    if copy.position is None:
        copy.begin(reader.table.schema.base, start)
    parts = _Parts(copy, progress, reader, start)
    for delivery in deliveries:
        match delivery:
            case SnapshotRows():
                parts.hold(delivery)
            case RangeComplete():
                parts.add_range(delivery)
            case RowsRead():
                parts.add(delivery.schema.base, delivery.batch)
            case WindowComplete():
                parts.reach(delivery.checkpoint)
    parts.commit()


@define
class _Parts:
    """What has been read since the last commit: rows of the snapshot, or changes, of one schema."""

    copy: TableCopy
    progress: Progress
    reader: CdcReader
    reached: Checkpoint
    """All changes before this position have been added."""
    _ranges: defaultdict[int, list[SnapshotRows]] = field(factory=lambda: defaultdict(list))
    """The rows of each reading of a range that is not complete. If a range is read again, its rows
    are delivered again."""
    _batches: list[pa.RecordBatch] = field(factory=list)
    _schema: TableSchema | None = None
    _rows: int = 0
    _are_rows: bool = False
    """Whether the batches have rows of the snapshot."""
    _commits: int = 0
    _since: float = field(factory=time.monotonic)

    def hold(self, rows: SnapshotRows) -> None:
        """Hold rows until their range is complete."""
        self._ranges[rows.reading].append(rows)

    def add_range(self, done: RangeComplete) -> None:
        """Add the rows of a range."""
        for rows in self._ranges.pop(done.reading, ()):
            self._add(rows.schema.base, rows.batch, are_rows=True)
        self._rows += done.rows
        self.reach(done.checkpoint)

    def add(self, schema: TableSchema, changes: pa.RecordBatch) -> None:
        """Add changes; commit those before them if there are many, or if the columns differ."""
        self._ranges.clear()  # the snapshot is complete
        self._add(schema, changes, are_rows=False)
        if sum(batch.nbytes for batch in self._batches) >= BYTES:
            self.commit()

    def reach(self, position: Checkpoint) -> None:
        """Record that everything before the position has been added; commit if that is due."""
        self.reached = position
        is_full = sum(batch.nbytes for batch in self._batches) >= BYTES
        if is_full or time.monotonic() >= self._since + SECONDS:
            self.commit()

    def commit(self) -> None:
        """Commit everything that was added."""
        if self._batches and self._schema is not None:
            write = self.copy.insert if self._are_rows else self.copy.apply
            write(self._schema, pa.Table.from_batches(self._batches), self.reached)
        elif self.reached != self.copy.position:
            self.copy.reach(self.reached)
        self._expire()
        changes = 0 if self._are_rows else sum(batch.num_rows for batch in self._batches)
        self.progress.committed(self.reached, self._rows, changes)
        self._maintain()
        self._batches, self._rows, self._since = [], 0, time.monotonic()

    def _add(self, schema: TableSchema, batch: pa.RecordBatch, *, are_rows: bool) -> None:
        if self._batches and (
            self._are_rows != are_rows or self._batches[0].schema != batch.schema
        ):
            self.commit()
        self._batches.append(batch)
        self._schema, self._are_rows = schema, are_rows

    def _expire(self) -> None:
        """Remove what has expired, with the columns that the copy has now."""
        table, clock = self.reader.table._rows_source()  # noqa: SLF001 - of this package
        schema = table.schema()
        output = ChangesFormat(schema, _FORMAT)
        rereading = Rereading(table, schema, output, output.schema, self.reader.config, clock)
        self.copy.expire(schema.base, rereading)

    def _maintain(self) -> None:
        self._commits += bool(self._batches)
        if self._batches and self._commits % EVERY == 0:
            self.copy.maintain()
