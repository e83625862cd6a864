"""What a table and its log look like, from `system_schema`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from cdc_reader import cql_type
from cdc_reader.cql_type import CqlType, UserType
from cdc_reader.driver.extensions import parse_cdc_options
from cdc_reader.driver.queries import Queries
from cdc_reader.errors import (
    CdcNotEnabledError,
    SchemaError,
    TableNotFoundError,
    UnsupportedTableError,
)
from cdc_reader.ids import LOG_SUFFIX, TableName
from cdc_reader.logs import get_logger
from cdc_reader.schema import CdcOptions, Column, ColumnKind, LogSchema, TableSchema

log = get_logger(__name__)

_META_COLUMNS = (
    "cdc$stream_id",
    "cdc$time",
    "cdc$batch_seq_no",
    "cdc$operation",
    "cdc$ttl",
    "cdc$end_of_batch",
)
_KEYSPACE = "FROM system_schema.{} WHERE keyspace_name = ?"


class SchemaSource:
    """Reads schemas over a connection, each error with its own remedy."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def log_schema(self, name: TableName) -> LogSchema:
        """The log of the base table `name`.

        Raises TableNotFoundError, CdcNotEnabledError, UnsupportedTableError; the last also where
        two columns of the log have one name.
        """
        options = self._cdc_options(name)
        types = _UserTypes(name.keyspace, self._rows("*", "types", name.keyspace))
        log_columns = self._columns(name.log, types)
        if not any(column.name == "cdc$stream_id" for column in log_columns):
            raise _not_enabled(name)
        if not options.enabled:
            log.warning("cdc_disabled_old_log_kept", table=str(name))
        base = TableSchema(name, self._columns(name, types), options)
        _refuse_shared_names(base)
        return LogSchema(base, log_columns)

    def table_schema(self, name: TableName) -> TableSchema:
        """The table `name`, whether it has a log or not.

        Raises TableNotFoundError, UnsupportedTableError.
        """
        options = self._cdc_options(name)
        types = _UserTypes(name.keyspace, self._rows("*", "types", name.keyspace))
        return TableSchema(name, self._columns(name, types), options)

    def _cdc_options(self, name: TableName) -> CdcOptions:
        found = self._table("extensions", name)
        if not found:
            raise self._missing(name)
        if name.is_log_name:
            base = TableName(name.keyspace, name.name.removesuffix(LOG_SUFFIX))
            if self._table("table_name", base):
                raise UnsupportedTableError(
                    f"{name} is itself a CDC log; give its base table, {base}"
                )
        return parse_cdc_options(dict(found[0]["extensions"] or ()).get("cdc"))

    def _missing(self, name: TableName) -> SchemaError:
        tables = [row["table_name"] for row in self._rows("table_name", "tables", name.keyspace)]
        views = [row["view_name"] for row in self._rows("view_name", "views", name.keyspace)]
        if name.name in views:
            return UnsupportedTableError(
                f"{name} is a materialized view, which has no CDC log; give its base table"
            )
        if not tables and not self._rows("keyspace_name", "keyspaces", name.keyspace):
            return TableNotFoundError(
                f"keyspace {name.keyspace} of table {name} was not found; check its spelling "
                "(names are case-sensitive)"
            )
        close = difflib.get_close_matches(name.name, tables, n=1)
        hint = f"did you mean {close[0]}?" if close else "check its spelling (case-sensitive)"
        return TableNotFoundError(f"table {name} was not found; {hint}")

    def _columns(self, name: TableName, types: _UserTypes) -> tuple[Column, ...]:
        return tuple(_column(row, types) for row in self._rows_of_table("*", "columns", name))

    def _table(self, columns: str, name: TableName) -> list[dict[str, Any]]:
        """Its row of the schema; none if there is no such table. No other is read: a keyspace may
        have very many.
        """
        return self._rows_of_table(columns, "tables", name)

    def _rows_of_table(self, columns: str, table: str, name: TableName) -> list[dict[str, Any]]:
        cql = f"SELECT {columns} {_KEYSPACE.format(table)} AND table_name = ?"
        return self._queries.rows(cql, name.keyspace, name.name)

    def _rows(self, columns: str, table: str, keyspace: str) -> list[dict[str, Any]]:
        return self._queries.rows(f"SELECT {columns} {_KEYSPACE.format(table)}", keyspace)


class _UserTypes:
    """The user-defined types of a keyspace, put together when a column names them."""

    def __init__(self, keyspace: str, rows: list[dict[str, Any]]) -> None:
        self._keyspace = keyspace
        self._rows = {row["type_name"]: row for row in rows}

    def parse(self, text: str) -> CqlType:
        try:
            return cql_type.parse(text, self._definition)
        except ValueError as error:
            raise UnsupportedTableError(
                f"{error}; this version cannot read such a column"
            ) from None

    def _definition(self, name: str) -> UserType:
        if (row := self._rows.get(name)) is None:
            raise ValueError(f"unknown type {name!r} in keyspace {self._keyspace}")
        types = map(self.parse, row["field_types"])
        return UserType(self._keyspace, name, tuple(zip(row["field_names"], types, strict=True)))


def _column(row: dict[str, Any], types: _UserTypes) -> Column:
    return Column(
        row["column_name"],
        types.parse(row["type"]),
        ColumnKind(row["kind"]),
        row["position"],
        row["clustering_order"].upper() == "DESC",  # Cassandra writes it small
    )


def _refuse_shared_names(base: TableSchema) -> None:
    """Where two columns of a log would have one name, there is one, and its cells mean nothing."""
    owners = dict.fromkeys(_META_COLUMNS, "the log itself")
    for column in base.columns:
        for log_column in _log_names(column):
            if other := owners.get(log_column):
                raise UnsupportedTableError(
                    f"column {column.name} of table {base.name} and {other} both need the log "
                    f"column {log_column}: rename {column.name}, or drop it"
                )
            owners[log_column] = f"column {column.name}"


def _log_names(column: Column) -> Iterator[str]:
    """The names of the log columns that a column of the base table has."""
    yield column.name
    if column.kind in (ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING):
        return
    yield f"cdc$deleted_{column.name}"
    if cql_type.is_multi_cell(column.type):
        yield f"cdc$deleted_elements_{column.name}"


def dropped(name: TableName) -> TableNotFoundError:
    """The error of a table that was there before."""
    return TableNotFoundError(f"table {name} was not found: it was dropped meanwhile")


def _not_enabled(name: TableName) -> CdcNotEnabledError:
    return CdcNotEnabledError(
        f"table {name} has no CDC log; turn it on: "
        f"ALTER TABLE {name.cql} WITH cdc = {{'enabled': true}}"
    )
