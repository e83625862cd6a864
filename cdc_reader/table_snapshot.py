"""`TableSnapshot`: a table's existing rows, as Arrow batches or as changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from attrs import frozen

from cdc_reader._time import Micros
from cdc_reader.cql.schema import LogSchema
from cdc_reader.decoding import arrow_schema
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.ports import (
    TTLS_AND_TIMES,
    GenerationSource,
    LogSource,
    RowSource,
    SnapshotTable,
)
from cdc_reader.reading.snapshot import (
    RangeComplete,
    SnapshotDelivery,
    SnapshotReader,
    SnapshotShare,
)

MakeReader = Callable[..., SnapshotReader]
"""Applies a function to the table, and makes a reader of the result.

For `cells`, see `SnapshotTable.rows`."""

if TYPE_CHECKING:  # the formats are imported when they are used
    from cdc_reader.changes.change import Change
    from cdc_reader.changes.frames import ChangeFormat


@frozen
class FixedSchema:
    """A `SnapshotTable` that is read with one schema, even if the table is altered.

    If `tolerant` is True, a cell that cannot be decoded is recorded, and no error is raised.
    Without `generations`, the table's generations are used.
    """

    _table: SnapshotTable
    _schema: LogSchema
    _tolerant: bool = False
    _generations: GenerationSource | None = None

    @property
    def generations(self) -> GenerationSource:
        """See `LogTable.generations`."""
        return self._table.generations if self._generations is None else self._generations

    def moment(self, now: Micros, age: int) -> Micros:
        """See `LogTable.moment`."""
        return self._table.moment(now, age)

    def schema_version(self, since: Micros | None = None) -> str | None:
        """Return the version of the fixed schema."""
        del since
        return self._schema.version

    def schema_versions(self) -> Collection[str | None]:
        """Return the version of the fixed schema."""
        return {self._schema.version}

    def schema(self) -> LogSchema:
        """Return the fixed schema."""
        return self._schema

    def source(self, schema: LogSchema) -> LogSource:
        """See `LogTable.source`."""
        return self._table.source(schema)

    def rows(
        self,
        schema: LogSchema,
        *,
        cells: Sequence[str] = (),
        tokens: bool = False,
        tolerant: bool = False,
    ) -> RowSource:
        """See `SnapshotTable.rows`."""
        is_tolerant = tolerant or self._tolerant
        return self._table.rows(schema, cells=cells, tokens=tokens, tolerant=is_tolerant)


class TableSnapshot:
    """The existing rows of a table, or of one shard; follow the log from `position` afterwards.

        snapshot = reader.table.snapshot()
        for batch in snapshot.batches():
            write(batch)
        for delivery in reader.follow(snapshot.position):
            ...

    Each row is read at some moment while the snapshot is taken. It may already include changes
    written after the position, which the log delivers again. Rows are in no particular order,
    except that a partition's rows are returned together, in the table's order. Several pages are
    read at a time, and only a few are in memory, however large the table is.

    Each method call reads the table again. Methods raise errors of `cdc_reader.errors`, and
    StoppedError if the reader is stopped.
    """

    def __init__(self, schema: LogSchema, start: Checkpoint, make_reader: MakeReader) -> None:
        self.checkpoint = start
        """The snapshot's start; pass it to `TableReader.snapshot` to begin there again."""
        self._schema = schema
        self._make_reader = make_reader
        self._reader: SnapshotReader | None = None

    @property
    def position(self) -> Micros:
        """The position from which to follow the log, in µs since 1970.

        The rows count as written at this time.
        """
        return self.checkpoint.position

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches that `batches()` yields without an argument."""
        return arrow_schema(self._schema.base.columns)

    @property
    def share(self) -> SnapshotShare:
        """The part of the snapshot that the latest method call has read."""
        if self._reader is None:
            return SnapshotShare(0, 0.0, None)
        return self._reader.share

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows as a SELECT returns them, one batch per page.

        `columns` are the columns to read in addition to the key; by default, all columns. Each row
        has its partition's static columns. A partition that has only static columns yields one row,
        whose clustering key is null. Raises ConfigurationError for a column that the table does not
        have.
        """
        from cdc_reader.changes.frames import column_names, project

        return self._batches(project(self._schema, column_names(columns)))

    def change_batches(
        self,
        format: ChangeFormat | str = "changes",  # noqa: A002 - Spark's name
    ) -> pa.RecordBatchReader:
        """Return the rows as inserts, with the columns of `TableReader.change_batches`.

        Raises the same errors as that method, and ConfigurationError for format ``log``.
        """
        from cdc_reader.changes.frames import (
            cells_for,
            change_format,
            project,
            snapshot_format_of,
        )

        wanted = change_format(format)
        schema = project(self._schema, wanted.columns)
        row_format = snapshot_format_of(wanted, schema)
        cells = cells_for(row_format.schema.names)
        split = split_rows(self._begin(schema, tolerant=row_format.is_tolerant, cells=cells))
        rows = row_format.snapshot(split, row_format.schema, self.position)
        return pa.RecordBatchReader.from_batches(row_format.schema, rows)

    def changes(self) -> Iterator[Change]:
        """Yield the rows as changes whose operation is `ChangeOperation.SNAPSHOT`.

        The static columns of a partition are a separate change, before the changes of its rows.
        """
        from cdc_reader.changes.snapshot import SnapshotChanges

        changes = SnapshotChanges()
        for delivery in self._begin(self._schema, cells=TTLS_AND_TIMES):
            yield from chain.from_iterable(changes.each(delivery))

    def deliveries(self) -> Iterator[SnapshotDelivery]:
        """Yield `SnapshotRows`, and a `RangeComplete` after the last rows of each range.

        To continue after a crash, store the checkpoint of each `RangeComplete` together with the
        effect of the rows, and pass the last checkpoint to `TableReader.snapshot`. The schema may
        change during the snapshot.
        """
        self._reader = self._make_reader(lambda table: table, cells=())
        return self._reader.deliveries()

    def _begin(
        self, schema: LogSchema, *, tolerant: bool = False, cells: Sequence[str] = ()
    ) -> Iterator[SnapshotDelivery]:
        """Begin to read the rows with the columns of `schema`."""

        def fixed(table: SnapshotTable) -> SnapshotTable:
            return FixedSchema(table, schema, tolerant)

        self._reader = self._make_reader(fixed, cells=cells)
        return self._reader.deliveries()

    def _batches(self, schema: LogSchema) -> Iterator[pa.RecordBatch]:
        for delivery in self._begin(schema):
            if not isinstance(delivery, RangeComplete):
                yield delivery.batch


def split_rows(deliveries: Iterable[SnapshotDelivery]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield the rows, each batch with a flag that is True for static rows."""
    from cdc_reader.changes.frames.table_rows import SplitRows

    split = SplitRows()
    for delivery in deliveries:
        if isinstance(delivery, RangeComplete):
            split.end(delivery.reading)
        else:
            yield from split.feed(delivery, delivery.schema.base)
