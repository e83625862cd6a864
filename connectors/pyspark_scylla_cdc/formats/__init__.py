"""Formats: what rows of the log become on their way into a DataFrame."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

import pyarrow as pa

from cdc_reader.schema import Column, LogSchema
from pyspark_scylla_cdc.formats.asked import Asked, FormatName, Preimages, RangeDelete
from pyspark_scylla_cdc.formats.changes import ChangesFormat
from pyspark_scylla_cdc.formats.columns import chosen
from pyspark_scylla_cdc.formats.envelope import EnvelopeFormat
from pyspark_scylla_cdc.formats.log import LogFormat
from pyspark_scylla_cdc.formats.value_types import ValueTypes

__all__ = [
    "Asked",
    "Format",
    "FormatName",
    "Preimages",
    "RangeDelete",
    "ValueTypes",
    "chosen",
    "format_of",
]


class Format(Protocol):
    """Makes rows of one shape from rows of one log."""

    schema: pa.Schema
    """All the columns there are."""

    def log_columns(self, wanted: Collection[str]) -> tuple[Column, ...]:
        """The columns of the log to read for these columns."""
        ...

    def convert(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """The rows that come of these, which have `log_columns` and hold each stream's in order;
        with the columns of `schema`, a part of the format's.
        """
        ...

    def snapshot(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, position: int
    ) -> Iterator[pa.RecordBatch]:
        """Rows of the base table as inserts of `position`, in µs, with the columns of `schema`."""
        ...


def format_of(asked: Asked, schema: LogSchema, types: ValueTypes) -> Format:
    """The format asked for; raises UnsupportedTableError if the table cannot be shown so."""
    match asked.format:
        case FormatName.LOG:
            return LogFormat(schema, types)
        case FormatName.CHANGES:
            return ChangesFormat(schema, asked, types)
        case FormatName.ENVELOPE:
            return EnvelopeFormat(schema, asked, types)
