"""Formats: Arrow rows made from the log, for the Spark source and for `change_batches`.

This package may import `changes` and whatever `changes` may import. Begin with the interface
`Format` and the most common format, `changes`. `columns` defines the columns that formats add.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from cdc_reader._time import Micros
from cdc_reader.changes.frames.change_format import ChangeFormat, change_format
from cdc_reader.changes.frames.changes import ChangesFormat
from cdc_reader.changes.frames.columns import EXPIRES, column_names, project
from cdc_reader.changes.frames.envelope import EnvelopeFormat
from cdc_reader.changes.frames.log import LogFormat
from cdc_reader.cql.schema import Column, LogSchema
from cdc_reader.errors import ConfigurationError
from cdc_reader.reading.ports import TTLS

__all__ = [
    "ChangeFormat",
    "Format",
    "SnapshotFormat",
    "cells_for",
    "change_format",
    "column_names",
    "format_of",
    "project",
    "snapshot_format_of",
]


class Format(Protocol):
    """Converts rows of one log to rows of one format."""

    schema: pa.Schema
    """All columns of the format."""
    is_tolerant: bool
    """Whether rows with cells that cannot be converted are accepted; see `decoding.faults`."""

    def log_columns(self, wanted: Collection[str]) -> tuple[Column, ...]:
        """Return the log columns that must be read to produce the columns `wanted`."""
        ...

    def convert(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Convert rows of the log to rows with the columns of `schema`.

        `schema` contains some or all columns of the format. The batches come from the kernel. They
        contain the columns that `log_columns` returns, and the rows of each stream in order.
        """
        ...


class SnapshotFormat(Format, Protocol):
    """A format that also converts rows of the base table: every format except ``log``."""

    def snapshot(
        self, rows: Iterable[tuple[pa.RecordBatch, bool]], schema: pa.Schema, position: Micros
    ) -> Iterator[pa.RecordBatch]:
        """Convert rows of the base table to inserts with the write time `position` (µs).

        `rows` contains batches of `TableRows` from the kernel, each with a flag that is True for
        static rows.
        `schema` contains the columns of the result.
        """
        ...


def cells_for(names: Collection[str]) -> Sequence[str]:
    """Return what a read of the base table must give of its cells, see `SnapshotTable.rows`.

    `names` are the columns of a format that are wanted.
    """
    return TTLS if EXPIRES in names else ()


def format_of(wanted: ChangeFormat, schema: LogSchema) -> Format:
    """Return the format of rows of the log.

    Raises UnsupportedTableError if the table's log does not support the format.
    """
    return LogFormat(schema, wanted) if wanted.name == "log" else snapshot_format_of(wanted, schema)


def snapshot_format_of(wanted: ChangeFormat, schema: LogSchema) -> SnapshotFormat:
    """Return the format of rows of the log and of snapshots.

    Raises ConfigurationError for ``log``, which has no snapshots, and UnsupportedTableError if the
    table's log does not support the format.
    """
    match wanted.name:
        case "changes":
            return ChangesFormat(schema, wanted)
        case "envelope":
            return EnvelopeFormat(schema, wanted)
        case "log":
            remedy = "a row of the table is no row of its log: give 'changes' or 'envelope'"
            raise ConfigurationError("format", wanted.name, remedy)
