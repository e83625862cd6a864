"""Which columns of base table and log a query has to do with."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa
from attrs import evolve

from cdc_reader.cql_type import is_multi_cell
from cdc_reader.errors import ConfigurationError, UnsupportedTableError
from cdc_reader.schema import Column, ColumnKind, LogSchema, TableSchema
from pyspark_scylla_cdc.formats.records import STREAM_ID, TIME
from pyspark_scylla_cdc.formats.row_changes import OPERATION, SEQUENCE

_ALWAYS = (STREAM_ID, TIME, SEQUENCE, OPERATION)
DELETED = "cdc$deleted_"
DELETED_ELEMENTS = "cdc$deleted_elements_"


def is_key(column: Column) -> bool:
    """Whether the column is part of the primary key."""
    return column.kind in (ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING)


def chosen(schema: LogSchema, wanted: Collection[str] | None) -> LogSchema:
    """The schema with the key and, of the other columns of the base table, those `wanted` only.

    Raises ConfigurationError for a name that is none of the table's.
    """
    if wanted is None:
        return schema
    known = [column.name for column in schema.base.columns]
    for name in wanted:
        if name not in known:
            raise ConfigurationError("columns", name, f"{schema.base.name} {_hint(name, known)}")
    columns = schema.base.columns
    kept = tuple(column for column in columns if is_key(column) or column.name in wanted)
    dropped = [column for column in schema.base.columns if column not in kept]
    gone = {name for column in dropped for name in _log_names(column)}
    return LogSchema(
        evolve(schema.base, columns=kept),
        tuple(column for column in schema.columns if column.name not in gone),
    )


def log_columns(log: LogSchema, values: Collection[str], *, deltas: bool) -> tuple[Column, ...]:
    """The log's columns with what a row tells of the key and of the columns `values`."""
    wanted = {*_ALWAYS, *values}
    wanted.update(column.name for column in log.base.columns if is_key(column))
    if deltas:
        wanted.update(prefix + name for name in values for prefix in (DELETED, DELETED_ELEMENTS))
    return tuple(column for column in log.columns if column.name in wanted)


def with_own_columns(
    base: TableSchema, columns: Iterable[pa.Field], own: Iterable[tuple[str, pa.DataType]]
) -> pa.Schema:
    """The columns and ours behind them; raises UnsupportedTableError if a name is taken."""
    fields = [pa.field(name, kind) for name, kind in own]
    taken = {column.name for column in base.columns}
    for field in fields:
        if field.name in taken:
            raise UnsupportedTableError(
                f"{base.name} has a column {field.name}, a name that this source gives to a "
                "column of its own: rename the column, or drop it and add it under another name"
            )
    return pa.schema([*columns, *fields])


def _log_names(column: Column) -> Iterator[str]:
    yield column.name
    yield DELETED + column.name
    if is_multi_cell(column.type):
        yield DELETED_ELEMENTS + column.name


def _hint(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"has no such column; did you mean {close[0]}?"
    return f"has no such column; its columns are {', '.join(known)}"
