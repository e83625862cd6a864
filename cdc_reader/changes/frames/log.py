"""Format ``log``: the rows of the log table unchanged, plus the time of each write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial

import pyarrow as pa

from cdc_reader.changes.frames.bad_records import BadRecords, Origins, bad_record_field
from cdc_reader.changes.frames.change_format import ChangeFormat
from cdc_reader.changes.frames.columns import COMMIT_TIMESTAMP, with_own_columns
from cdc_reader.changes.frames.commit_time import TIMESTAMP, commit_timestamps
from cdc_reader.changes.frames.value_types import ValueTypes
from cdc_reader.cql.schema import TIME, Column, LogSchema


class LogFormat:
    """Rows with the log table's columns, in the server's order, followed by `_commit_timestamp`."""

    def __init__(self, schema: LogSchema, wanted: ChangeFormat) -> None:
        self._base = schema.base
        self._columns = schema.columns
        self._policy = wanted.on_bad_record
        self._types = ValueTypes.parse(wanted.decimal_type, schema.base)
        self.is_tolerant = self._policy != "fail"
        own = [(COMMIT_TIMESTAMP, TIMESTAMP), *bad_record_field(self._policy)]
        self.schema = with_own_columns(schema.base, self._types.fields(schema.columns), own)

    def log_columns(self, wanted: Collection[str]) -> tuple[Column, ...]:
        """Return the columns `wanted`, and `cdc$time`, from which the write time is computed."""
        return tuple(
            column for column in self._columns if column.name in wanted or column.name == TIME
        )

    def convert(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows with the columns of `schema`."""
        typed = map(self._types.converter(self._columns), batches)
        parts = ((Origins.each(batch), partial(_column, batch)) for batch in typed)
        return BadRecords(self._policy, self._base, schema).rows(parts)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return commit_timestamps(batch.column(TIME)) if name == COMMIT_TIMESTAMP else batch.column(name)
