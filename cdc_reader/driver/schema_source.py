"""What a table and its log look like, from `system_schema`."""

from __future__ import annotations

import difflib
from typing import Any

from cdc_reader import cql_type
from cdc_reader.cql_type import CqlType, UserType
from cdc_reader.driver.extensions import parse_cdc_options
from cdc_reader.driver.session import Connection
from cdc_reader.errors import (
    CdcNotEnabledError,
    QueryRefusedError,
    SchemaError,
    TableNotFoundError,
    UnsupportedTableError,
)
from cdc_reader.ids import LOG_SUFFIX, TableName
from cdc_reader.logs import get_logger
from cdc_reader.schema import CdcOptions, Column, ColumnKind, LogSchema, TableSchema

log = get_logger(__name__)

_KEYSPACE = "FROM system_schema.{} WHERE keyspace_name = %s"


class SchemaSource:
    """Reads schemas over a connection, each error with its own remedy."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def log_schema(self, name: TableName) -> LogSchema:
        """The log of the base table `name`.

        Raises TableNotFoundError, CdcNotEnabledError, UnsupportedTableError.
        """
        options = self._cdc_options(name)
        self._refuse_tablets(name)
        types = _UserTypes(name.keyspace, self._rows("*", "types", name.keyspace))
        log_columns = self._columns(name.log, types)
        if not any(column.name == "cdc$stream_id" for column in log_columns):
            raise _not_enabled(name)
        if not options.enabled:
            log.warning("cdc_disabled_old_log_kept", table=str(name))
        return LogSchema(TableSchema(name, self._columns(name, types), options), log_columns)

    def _cdc_options(self, name: TableName) -> CdcOptions:
        tables = {
            row["table_name"]: row["extensions"]
            for row in self._rows("table_name, extensions", "tables", name.keyspace)
        }
        if name.name not in tables:
            raise self._missing(name, list(tables))
        if name.is_log_name and (base := name.name.removesuffix(LOG_SUFFIX)) in tables:
            raise UnsupportedTableError(
                f"{name} is itself a CDC log; give its base table, {name.keyspace}.{base}"
            )
        return parse_cdc_options(dict(tables[name.name] or ()).get("cdc"))

    def _missing(self, name: TableName, tables: list[str]) -> SchemaError:
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

    def _refuse_tablets(self, name: TableName) -> None:
        try:
            rows = self._rows("*", "scylla_keyspaces", name.keyspace)
        except QueryRefusedError:
            return  # a server from before this table has no tablets either
        if any(row.get("initial_tablets") is not None for row in rows):
            raise UnsupportedTableError(
                f"keyspace {name.keyspace} of table {name} uses tablets, which this version "
                "cannot read; create the keyspace WITH tablets = {'enabled': false}"
            )

    def _columns(self, name: TableName, types: _UserTypes) -> tuple[Column, ...]:
        rows = self._connection.rows(
            f"SELECT * {_KEYSPACE.format('columns')} AND table_name = %s",
            name.keyspace,
            name.name,
        )
        return tuple(_column(row, types) for row in rows)

    def _rows(self, columns: str, table: str, keyspace: str) -> list[dict[str, Any]]:
        return self._connection.rows(f"SELECT {columns} {_KEYSPACE.format(table)}", keyspace)


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
        row["column_name"], types.parse(row["type"]), ColumnKind(row["kind"]), row["position"]
    )


def _not_enabled(name: TableName) -> CdcNotEnabledError:
    return CdcNotEnabledError(
        f"table {name} has no CDC log; turn it on: "
        f"ALTER TABLE {name.cql} WITH cdc = {{'enabled': true}}"
    )
