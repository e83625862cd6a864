"""Format ``log``: the rows of the log table unchanged, plus the time of each write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa

from cdc_reader._time import Micros
from cdc_reader.changes.frames.columns import COMMIT_TIMESTAMP, with_own_columns
from cdc_reader.changes.frames.commit_time import TIMESTAMP, commit_timestamps
from cdc_reader.changes.frames.value_types import ValueTypes
from cdc_reader.cql.schema import TIME, Column, LogSchema


class LogFormat:
    """The columns of the log table, in the server's order, then `_commit_timestamp`."""

    def __init__(self, schema: LogSchema, types: ValueTypes) -> None:
        self._columns = schema.columns
        own = [(COMMIT_TIMESTAMP, TIMESTAMP)]
        self.schema = with_own_columns(schema.base, types.fields(schema.columns), own)

    def log_columns(self, wanted: Collection[str]) -> tuple[Column, ...]:
        """Return the columns `wanted`, and `cdc$time`, from which the write time is computed."""
        return tuple(
            column for column in self._columns if column.name in wanted or column.name == TIME
        )

    def snapshot(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, position: Micros
    ) -> Iterator[pa.RecordBatch]:
        """Not supported: rows of the base table are not rows of the log."""
        raise NotImplementedError

    def convert(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows with the columns of `schema`."""
        names = schema.names
        for batch in batches:
            yield (_timed(batch) if COMMIT_TIMESTAMP in names else batch).select(names)


def _timed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Append the time of each write."""
    return batch.append_column(COMMIT_TIMESTAMP, commit_timestamps(batch.column(TIME)))
