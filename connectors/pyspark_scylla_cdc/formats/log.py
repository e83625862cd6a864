"""Format ``log``: the rows of the log table as they are, and the time of each write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa

from cdc_reader.schema import Column, LogSchema
from pyspark_scylla_cdc.commit_time import TIMESTAMP, commit_timestamps
from pyspark_scylla_cdc.formats.columns import with_own_columns
from pyspark_scylla_cdc.formats.names import COMMIT_TIMESTAMP
from pyspark_scylla_cdc.formats.records import TIME
from pyspark_scylla_cdc.formats.value_types import ValueTypes


class LogFormat:
    """The columns of the log table, in the server's order, then `_commit_timestamp`."""

    def __init__(self, schema: LogSchema, types: ValueTypes) -> None:
        self._columns = schema.columns
        own = [(COMMIT_TIMESTAMP, TIMESTAMP)]
        self.schema = with_own_columns(schema.base, types.fields(schema.columns), own)

    def log_columns(self, wanted: Collection[str]) -> tuple[Column, ...]:
        """Those that are wanted, and the time that the time of the write is made of."""
        return tuple(
            column for column in self._columns if column.name in wanted or column.name == TIME
        )

    def snapshot(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, position: int
    ) -> Iterator[pa.RecordBatch]:
        """A row of the base table is no row of the log."""
        raise NotImplementedError

    def convert(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """These rows, with the columns of `schema`."""
        names = schema.names
        for batch in batches:
            yield (_timed(batch) if COMMIT_TIMESTAMP in names else batch).select(names)


def _timed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, and when each was written."""
    return batch.append_column(COMMIT_TIMESTAMP, commit_timestamps(batch.column(TIME)))
