"""Compares a table with a copy at a path: a Delta table or Parquet files, without Spark.

The rows of the copy are in no order, and their tokens cannot be computed from every type that they
may have. Both sides are therefore divided among temporary files, by a hash of the partition key,
and compared file by file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import pyarrow as pa
from attrs import frozen

from cdc_reader._arrow import cells, to_arrow
from cdc_reader._time import Micros, format_timestamp
from cdc_reader.changes.frames.columns import chosen
from cdc_reader.cql.schema import ColumnKind
from cdc_reader.cql.values import FrozenDict, converter
from cdc_reader.errors import CheckpointError, DataLossError
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import RowsRead
from cdc_reader.replication.buckets import Buckets, pairs
from cdc_reader.replication.comparison import Difference, Kind
from cdc_reader.replication.copy_columns import CopyColumns
from cdc_reader.replication.later_changes import change_schema, changed_keys, explained
from cdc_reader.replication.matching import (
    COLUMNS,
    KIND,
    KINDS,
    difference_schema,
    differences,
)
from cdc_reader.table_reader import TableReader

Progress = Callable[[float, int], object]
"""Is called with the share of the table that was read, and with its number of rows."""


class CopyRows(Protocol):
    """The rows of a copy, as it was at one moment."""

    @property
    def name(self) -> str:
        """The path or the name of the copy, for messages."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of the copy."""
        ...

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with the columns `names`. The rows are in any order."""
        ...


@frozen
class ComparedCopy:
    """The result of comparing a copy with its table."""

    rows: int
    """The number of rows in the table."""
    rows_in_copy: int
    missing: int
    """The number of rows that only the table has."""
    extra: int
    """The number of rows that only the copy has."""
    changed: int
    """The number of rows with other values in the copy."""
    newer: int
    """The number of rows that differ and were changed after `position`: these are no differences,
    because the copy has yet to get the changes."""
    position: Micros | None
    """The copy has the changes that were written before this time, in µs since 1970. None if the
    time is not known."""
    differences: tuple[Difference, ...]
    """The first rows that differ."""


class PathComparison:
    """Compares a table with its copy; TTLs and write times are not compared.

    All columns of the table are compared, or only the key and `columns` if given. `position` is
    where the copy's reader was before `copy` was opened. At most `limit` differences are kept.
    Raises UnsupportedTableError if the copy lacks columns or has them in other types, and
    ConfigurationError for columns that the table lacks.
    """

    def __init__(
        self,
        table: TableReader,
        copy: CopyRows,
        columns: Sequence[str] | None = None,
        *,
        position: Checkpoint | None = None,
        limit: int = 20,
        progress: Progress | None = None,
    ) -> None:
        base = table.schema.base
        self._base = base if columns is None else chosen(base, columns)
        self._columns = CopyColumns(self._base, copy.name, copy.schema)
        self._table, self._copy, self._position = table, copy, position
        self._limit, self._progress = limit, progress

    def compare(self) -> ComparedCopy:
        """Read both sides, and compare them.

        If rows differ, the log is read from the copy's position to the present, when the present
        has settled: that takes as long as the confidence window. Raises errors of
        `cdc_reader.errors`.
        """
        with TemporaryDirectory(prefix="scylla-cdc-compare-") as name:
            folder = Path(name)
            copied, rows = self._read_copy(folder / "copy"), self._read_table(folder / "table")
            differing = self._buckets(folder / "differing", difference_schema(self._columns))
            for table, copy in pairs(rows, copied):
                for found in differences(table, copy, self._columns):
                    differing.add(found)
            changes = self._read_log(folder / "log", needed=differing.count > 0)
            return self._result(rows.count, copied.count, differing.finish(), changes)

    def _buckets(self, folder: Path, schema: pa.Schema) -> Buckets:
        return Buckets(folder, schema, self._columns.partition)

    def _read_copy(self, folder: Path) -> Buckets:
        rows = self._buckets(folder, self._columns.schema)
        for batch in self._copy.batches(self._columns.places):
            rows.add(self._columns.of_copy(batch))
        return rows.finish()

    def _read_table(self, folder: Path) -> Buckets:
        rows, snapshot = self._buckets(folder, self._columns.schema), self._table.snapshot()
        values = [column.name for column in self._columns.values.values()]
        for batch in snapshot.batches(values):
            rows.add(self._columns.of_table(batch))
            if self._progress is not None:
                self._progress(snapshot.share.share, rows.count)
        return rows.finish()

    def _read_log(self, folder: Path, *, needed: bool) -> Buckets:
        """Read which rows have been changed between the copy's position and now."""
        changes = self._buckets(folder, change_schema(self._columns))
        if self._position is None or not needed:
            return changes.finish()
        try:
            for delivery in self._table.follow(self._position, "now"):
                if isinstance(delivery, RowsRead):
                    changes.add(changed_keys(delivery.batch, self._columns))
        except DataLossError:
            at = format_timestamp(self._position.position)
            raise CheckpointError(
                f"changes since {at}, the position of {self._copy.name}, are no longer in the log, "
                "which tells rows that have changed since then from rows that differ: bring the "
                "copy up to date, then compare again"
            ) from None
        return changes.finish()

    def _result(self, rows: int, copied: int, differing: Buckets, changes: Buckets) -> ComparedCopy:
        counts, first, later = Counter[Kind](), list[Difference](), 0
        statics = {column.name for column in self._base.of_kind(ColumnKind.STATIC)}
        for found, changed in pairs(differing, changes):
            judged = explained(found, changed, self._columns, statics)
            remaining = judged.rows.filter(to_arrow(~judged.later))
            later += int(judged.later.sum())
            counts.update(KINDS[kind] for kind in cells(remaining.column(KIND)))
            first += islice(self._told(remaining), self._limit - len(first))
        return ComparedCopy(
            rows,
            copied,
            counts[Kind.MISSING],
            counts[Kind.EXTRA],
            counts[Kind.CHANGED],
            later,
            None if self._position is None else self._position.position,
            tuple(first),
        )

    def _told(self, rows: pa.RecordBatch) -> Iterator[Difference]:
        """Yield rows that differ, with the values of their keys."""
        rows = rows.slice(0, self._limit)
        keys = [
            (column.name, converter(column.type)(rows.column(own)))
            for own, column in self._columns.key.items()
        ]
        kinds, lists = cells(rows.column(KIND)), rows.column(COLUMNS).to_pylist()
        for row, kind in enumerate(kinds):
            key = {name: values[row] for name, values in keys if values[row] is not None}
            yield Difference(KINDS[kind], FrozenDict(key), tuple(lists[row]))
