"""Reads tables, their logs and their CDC options from `system_schema`."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

from attrs import evolve

from cdc_reader._log import get_logger
from cdc_reader.cluster.queries import Queries
from cdc_reader.cql import types as cql_type
from cdc_reader.cql.names import LOG_SUFFIX, TableName, quoted
from cdc_reader.cql.schema import (
    BATCH_SEQ_NO,
    END_OF_BATCH,
    OPERATION,
    STREAM_ID,
    TIME,
    TTL,
    CdcOptions,
    Column,
    ColumnKind,
    ImageMode,
    LogSchema,
    TableSchema,
    TableState,
)
from cdc_reader.cql.types import CqlType, Native, UserType
from cdc_reader.errors import (
    CdcNotEnabledError,
    DecodeError,
    QueryRefusedError,
    SchemaError,
    TableNotFoundError,
    UnsupportedTableError,
)

log = get_logger(__name__)

_TRUE = ("true", "1", "on")
_IMAGES = {"full": ImageMode.FULL, **dict.fromkeys(_TRUE, ImageMode.TOUCHED)}

_SCYLLA_KEYSPACE = "SELECT * FROM system_schema.scylla_keyspaces WHERE keyspace_name = ?"
_META_COLUMNS = (STREAM_ID, TIME, BATCH_SEQ_NO, OPERATION, TTL, END_OF_BATCH)

_LOGGED_INDEXES = ("vector_index", "fulltext_index", "pattern_index")
"""The classes of indexes that a service outside the server builds from the log."""

_ALTERED = "writetime(extensions)"
"""Selects the time of the table's last ALTER, because every ALTER writes `extensions` again."""

_DEFAULT_TTL = "default_time_to_live"

_KEYSPACE = "FROM system_schema.{} WHERE keyspace_name = ?"


def parse_cdc_options(blob: bytes | None) -> CdcOptions:
    """Parse the options in `blob`: a little-endian count, then keys and values with their lengths.

    None, as for a table that never had CDC, means that CDC is off. Raises DecodeError if the blob
    is malformed.
    """
    if blob is None:
        return CdcOptions()
    texts = _texts(blob)
    options = dict(zip(texts[::2], texts[1::2], strict=True))
    return CdcOptions(
        enabled=_is_true(options, "enabled"),
        preimage=_IMAGES.get(options.get("preimage", "").lower(), ImageMode.OFF),
        postimage=_is_true(options, "postimage"),
        delta_keys_only=options.get("delta", "").lower() == "keys",
        ttl=int(options.get("ttl", "86400")),
    )


def _is_true(options: dict[str, str], key: str) -> bool:
    return options.get(key, "").lower() in _TRUE


def _texts(blob: bytes) -> list[str]:
    texts, position = [], 4
    for _ in range(2 * int.from_bytes(blob[:4], "little")):
        start = position + 4
        position = start + int.from_bytes(blob[start - 4 : start], "little")
        if position > len(blob):
            raise DecodeError(f"a cdc option ends beyond its map of {len(blob)} bytes")
        texts.append(blob[start:position].decode())
    return texts


def uses_tablets(queries: Queries, keyspace: str) -> bool:
    """Return True if the keyspace uses tablets."""
    return _options(queries, keyspace).get("initial_tablets") is not None


def strong_consistency(queries: Queries, keyspace: str) -> str | None:
    """Return the keyspace's option `consistency` if it is ``local`` or ``global``, else None."""
    consistency = _options(queries, keyspace).get("consistency")
    return consistency if consistency in ("local", "global") else None


def _options(queries: Queries, keyspace: str) -> dict[str, Any]:
    try:
        return next(iter(queries.rows(_SCYLLA_KEYSPACE, keyspace)), {})
    except QueryRefusedError:
        return {}  # a server without this table has neither option


_REPLICAS = 3


class SchemaSource:
    """Reads schemas over a connection; each error says what to do."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    def log_schema(self, name: TableName) -> LogSchema:
        """Read the schema of the log of the base table `name`.

        Raises TableNotFoundError, CdcNotEnabledError or UnsupportedTableError.
        UnsupportedTableError is also raised if two columns of the log share a name, or if the
        keyspace logs no writes. Warns if CDC is off, because the log then contains only earlier
        writes.
        """
        state = self.state(name)
        if consistency := strong_consistency(self._queries, name.keyspace):
            raise _never_logged(name, consistency)
        types = _UserTypes(name.keyspace, self._rows("*", "types", name.keyspace))
        log_columns = self._columns(name.log, types)
        if not any(column.name == STREAM_ID for column in log_columns):
            raise _no_log(name, self._columns(name, types))
        if not state.cdc.enabled:
            log.warning(
                "cdc_is_off",
                table=str(name),
                meaning="its log keeps the rows it has, and gets no new ones",
                remedy="to log new changes, enable cdc on the table",
            )
        base = self._table_schema(name, types, state)
        _refuse_shared_names(base)
        return LogSchema(base, log_columns)

    def table_schema(self, name: TableName) -> TableSchema:
        """Read the schema of the table `name`, which need not have a log.

        Raises TableNotFoundError or UnsupportedTableError.
        """
        state = self.state(name)
        types = _UserTypes(name.keyspace, self._rows("*", "types", name.keyspace))
        return self._table_schema(name, types, state)

    def logged(self, keyspace: str) -> list[TableName]:
        """Return the tables of the keyspace that have a log; none if there is no such keyspace."""
        tables = {row["table_name"] for row in self._rows("table_name", "tables", keyspace)}
        logs = {table + LOG_SUFFIX for table in tables} & tables
        bases = (TableName(keyspace, table) for table in tables - logs)
        return [base for base in bases if base.log.name in logs]

    def keyspace_creation(self, keyspace: str) -> str | None:
        """Return the statement that creates the keyspace; None if the keyspace exists.

        It gets three replicas, or one on each node of a smaller cluster.
        """
        if self._rows("keyspace_name", "keyspaces", keyspace):
            return None
        peers = self._queries.rows("SELECT peer FROM system.peers")
        replicas = min(1 + len(peers), _REPLICAS)
        return (
            f"CREATE KEYSPACE {quoted(keyspace)} WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {replicas}}}"
        )

    def user_types(self, keyspace: str, names: Iterable[str]) -> dict[str, UserType]:
        """Return the keyspace's user-defined types among `names`, by name."""
        types = _UserTypes(keyspace, self._rows("*", "types", keyspace))
        found = ((name, types.find(name)) for name in names)
        return {name: user_type for name, user_type in found if user_type is not None}

    def state(self, name: TableName) -> TableState:
        """Read the state of the table `name`; costs one or two small queries.

        A vector or full-text index keeps CDC on, whatever the table's options say. Raises
        TableNotFoundError or UnsupportedTableError.
        """
        base = TableName(name.keyspace, name.name.removesuffix(LOG_SUFFIX))
        columns = f"table_name, id, extensions, {_DEFAULT_TTL}, {_ALTERED}"
        found = self._tables(columns, name, name.log, base)
        if (row := found.get(name.name)) is None:
            raise self._missing(name)
        if name.is_log_name and base.name in found:
            raise UnsupportedTableError(f"{name} is itself a CDC log; give its base table, {base}")
        options = parse_cdc_options(dict(row["extensions"] or ()).get("cdc"))
        if not options.enabled and self._has_logged_index(name):
            options = evolve(options, enabled=True)
        log_row = found.get(name.log.name)
        log_id = None if log_row is None else UUID(log_row["id"])
        default_ttl = row[_DEFAULT_TTL] or 0
        return TableState(UUID(row["id"]), options, row[_ALTERED], log_id, default_ttl)

    def _has_logged_index(self, name: TableName) -> bool:
        """Return True if the table has an index that an external service builds from the log."""
        indexes = self._rows_of_table("options", "indexes", name)
        classes = (dict(index["options"] or ()).get("class_name", "") for index in indexes)
        return any(name.lower() in _LOGGED_INDEXES for name in classes)

    def _table_schema(self, name: TableName, types: _UserTypes, state: TableState) -> TableSchema:
        columns = self._columns(name, types)
        return TableSchema(
            name, columns, state.cdc, state.id, state.altered, state.log_id, state.default_ttl
        )

    def _missing(self, name: TableName) -> SchemaError:
        tables = [row["table_name"] for row in self._rows("table_name", "tables", name.keyspace)]
        views = [row["view_name"] for row in self._rows("view_name", "views", name.keyspace)]
        if name.name in views:
            return UnsupportedTableError(
                f"{name} is a materialized view, which has no CDC log; give its base table"
            )
        if not tables and not self._rows("keyspace_name", "keyspaces", name.keyspace):
            return TableNotFoundError(
                f"keyspace {name.keyspace} of table {name} was not found at "
                f"{self._queries.hosts}; check its spelling (names are case-sensitive) and the "
                "hosts"
            )
        hint = _nearest(name, tables) or "check its spelling (case-sensitive)"
        return TableNotFoundError(f"table {name} was not found at {self._queries.hosts}; {hint}")

    def _columns(self, name: TableName, types: _UserTypes) -> tuple[Column, ...]:
        return tuple(_column(row, types) for row in self._rows_of_table("*", "columns", name))

    def _tables(self, columns: str, *names: TableName) -> dict[str, dict[str, Any]]:
        """Read the descriptions of these tables of one keyspace; leave out missing tables.

        Returns, by table name, the given columns of `system_schema.tables`. Reads no descriptions
        of other tables, because a keyspace may have very many.
        """
        distinct = sorted({name.name for name in names})
        places = ", ".join("?" * len(distinct))
        cql = f"SELECT {columns} {_KEYSPACE.format('tables')} AND table_name IN ({places})"
        rows = self._queries.rows(cql, names[0].keyspace, *distinct)
        return {row["table_name"]: row for row in rows}

    def _rows_of_table(self, columns: str, table: str, name: TableName) -> list[dict[str, Any]]:
        cql = f"SELECT {columns} {_KEYSPACE.format(table)} AND table_name = ?"
        return self._queries.rows(cql, name.keyspace, name.name)

    def _rows(self, columns: str, table: str, keyspace: str) -> list[dict[str, Any]]:
        return self._queries.rows(f"SELECT {columns} {_KEYSPACE.format(table)}", keyspace)


def _nearest(name: TableName, tables: Collection[str]) -> str | None:
    """Return a hint, such as the base table nearest to a missing table, or None."""
    if name.is_pattern:
        return "name one table: only consumers, mirror and scylla-cdc tail take a pattern"
    base = TableName(name.keyspace, name.name.removesuffix(LOG_SUFFIX))
    if base.name in tables:
        return f"give its base table, {base}, which has no CDC log"
    logs = {table + LOG_SUFFIX for table in tables}
    bases = [table for table in tables if table not in logs]
    close = difflib.get_close_matches(base.name, bases, n=1)
    return f"did you mean {close[0]}?" if close else None


class _UserTypes:
    """The user-defined types of a keyspace, resolved when a column refers to them."""

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

    def find(self, name: str) -> UserType | None:
        """Return the type named `name`, or None."""
        if (row := self._rows.get(name)) is None:
            return None
        types = map(self.parse, row["field_types"])
        return UserType(self._keyspace, name, tuple(zip(row["field_names"], types, strict=True)))

    def _definition(self, name: str) -> UserType:
        if (found := self.find(name)) is None:
            raise ValueError(f"unknown type {name!r} in keyspace {self._keyspace}")
        return found


def _column(row: dict[str, Any], types: _UserTypes) -> Column:
    return Column(
        row["column_name"],
        types.parse(row["type"]),
        ColumnKind(row["kind"]),
        row["position"],
        row["clustering_order"].upper() == "DESC",  # Cassandra writes it in lower case
    )


def _refuse_shared_names(base: TableSchema) -> None:
    """Raise UnsupportedTableError if two columns of the table's log would have the same name.

    Such a log has only one of the two columns, and that column's cells are meaningless.
    """
    owners = dict.fromkeys(_META_COLUMNS, "the log itself")
    for column in base.columns:
        for log_column in column.log_names:
            if other := owners.get(log_column):
                raise UnsupportedTableError(
                    f"column {column.name} of table {base.name} and {other} both need the log "
                    f"column {log_column}: rename {column.name}, or drop it"
                )
            owners[log_column] = f"column {column.name}"


def dropped(name: TableName) -> TableNotFoundError:
    """Return the error for a table that existed before but is now missing."""
    return TableNotFoundError(f"table {name} was not found: it has been dropped")


def _no_log(name: TableName, columns: Iterable[Column]) -> SchemaError:
    if any(column.type == Native("counter") for column in columns):
        return UnsupportedTableError(
            f"{name} is a counter table, which cannot have a CDC log; read it with SELECT"
        )
    return CdcNotEnabledError(f"table {name} has no CDC log; turn it on: {_enabling(name)}")


def _enabling(name: TableName) -> str:
    return f"ALTER TABLE {name.cql} WITH cdc = {{'enabled': true}}"


def _never_logged(name: TableName, consistency: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"keyspace {name.keyspace} of table {name} has consistency '{consistency}', and ScyllaDB "
        "logs no writes to such keyspaces; move the table to a keyspace with consistency "
        "'eventual'"
    )
