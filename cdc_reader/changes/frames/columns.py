"""The columns that formats add, and the columns of the table and of its log that a query needs."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa
from attrs import evolve

from cdc_reader.cql.names import without_case
from cdc_reader.cql.schema import (
    BATCH_SEQ_NO,
    DELETED_PREFIX,
    OPERATION,
    REMOVED_PREFIX,
    STREAM_ID,
    TIME,
    TTL,
    Column,
    LogSchema,
    TableSchema,
)
from cdc_reader.errors import ConfigurationError, UnsupportedTableError

CHANGE_TYPE = "_change_type"

COMMIT_TIMESTAMP = "_commit_timestamp"

COMMIT_VERSION = "_commit_version"

SEQUENCE = "_sequence"

SNAPSHOT_BEGIN, SNAPSHOT_COMPLETE = "snapshot_begin", "snapshot_complete"
"""Change types of the rows that mark a snapshot's beginning and end; such rows have no key."""

MODIFIED = "_modified_columns"

NULLED = "_nulled_columns"

INSERTED = "_inserted"

EXPIRES = "_expires"

RANGE = "_range"

BAD_RECORD = "_bad_record"

ALL = frozenset(
    (
        CHANGE_TYPE,
        COMMIT_TIMESTAMP,
        COMMIT_VERSION,
        SEQUENCE,
        MODIFIED,
        NULLED,
        INSERTED,
        EXPIRES,
        RANGE,
        BAD_RECORD,
    )
)

_ALWAYS = (STREAM_ID, TIME, BATCH_SEQ_NO, OPERATION)


def column_names(given: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names; raise ConfigurationError for a string, which is a sequence too."""
    if isinstance(given, str):
        raise ConfigurationError("columns", given, "give a list of names")
    return None if given is None else tuple(given)


def project(schema: LogSchema, wanted: Collection[str] | None) -> LogSchema:
    """Reduce the schema to the base table's key and the columns `wanted`.

    Raises ConfigurationError if the table has no column of a given name.
    """
    if wanted is None:
        return schema
    base = chosen(schema.base, wanted)
    dropped = [column for column in schema.base.columns if column not in base.columns]
    gone = {name for column in dropped for name in column.log_names}
    return LogSchema(base, tuple(column for column in schema.columns if column.name not in gone))


def chosen(base: TableSchema, wanted: Collection[str]) -> TableSchema:
    """Reduce a table to its key and the columns `wanted`; raise ConfigurationError as `project`."""
    known = [column.name for column in base.columns]
    for name in wanted:
        if name not in known:
            raise ConfigurationError("columns", name, f"{base.name} {_hint(name, known)}")
    kept = tuple(column for column in base.columns if column.is_key or column.name in wanted)
    return evolve(base, columns=kept)


def log_columns(
    log: LogSchema, values: Collection[str], *, deltas: bool, ttls: bool = False
) -> tuple[Column, ...]:
    """Return the log columns that are needed to show the key and the columns `values`.

    With `deltas`, this includes the columns of deletions and of removed elements; with `ttls`, that
    of TTLs.
    """
    wanted = {*_ALWAYS, *values, *([TTL] if ttls else ())}
    wanted.update(column.name for column in log.base.columns if column.is_key)
    if deltas:
        wanted.update(
            prefix + name for name in values for prefix in (DELETED_PREFIX, REMOVED_PREFIX)
        )
    return tuple(column for column in log.columns if column.name in wanted)


def with_own_columns(
    base: TableSchema,
    columns: Iterable[pa.Field],
    own: Iterable[tuple[str, pa.DataType]],
    reserved: Collection[str] = (),
) -> pa.Schema:
    """Append the columns `own`, which a format adds, to other columns.

    Raises UnsupportedTableError if the base table has a column of such a name or of a `reserved`
    one, in upper or lower case, because Spark does not distinguish them.
    """
    fields = [pa.field(name, kind) for name, kind in own]
    names = {without_case(name): name for name in (*reserved, *(field.name for field in fields))}
    for column in base.columns:
        if (name := names.get(without_case(column.name))) is not None:
            raise UnsupportedTableError(
                f"{base.name} has a column {column.name}, but {name} is the name of a column that "
                "this source adds: leave it out with columns, or rename a key column"
            )
    return pa.schema([*columns, *fields])


def _hint(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"has no such column; did you mean {close[0]}?"
    return f"has no such column; its columns are {', '.join(known)}"
