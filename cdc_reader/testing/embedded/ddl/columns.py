"""The columns of CREATE TABLE and ALTER TABLE, and their allowed types."""

from __future__ import annotations

from cdc_reader.cql.types import CqlType, Native, UserType, children, is_multi_cell, parts
from cdc_reader.testing.embedded.errors import ConfigurationError, InvalidRequest
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.schema.names import resolve_type
from cdc_reader.testing.embedded.schema.table import Column, Kind, Table

_COUNTER, _DURATION = Native("counter"), Native("duration")


def column_type(definition: ast.ColumnDefinition, keyspace: str, catalog: Catalog) -> CqlType:
    """Return a column's type, with nested types frozen where required."""
    found = resolve_type(catalog, keyspace, definition.type)
    if found != _COUNTER and _COUNTER in parts(found):
        raise InvalidRequest(f"Counters are not allowed inside collections: {found}")
    if not is_multi_cell(found):  # freezing a type freezes its parts
        return found
    for inner in children(found):
        if is_multi_cell(inner) and isinstance(found, UserType):
            raise InvalidRequest(
                "Non-frozen UDTs with nested non-frozen collections are not supported"
            )
        if is_multi_cell(inner):
            raise InvalidRequest(
                "Non-frozen user types or collections are not allowed inside collections: "
                f"{definition.type.replace(str(inner), in_keyspace(inner))}"
            )
    return found


def in_keyspace(cql_type: CqlType) -> str:
    """Format a type as some error messages do: a user-defined type with its keyspace."""
    if not isinstance(cql_type, UserType):
        return str(cql_type)
    name = f"{cql_type.keyspace}.{cql_type.name}"
    return f"frozen<{name}>" if cql_type.frozen else name


def key_column(column: Column) -> Column:
    """Return the column if its type is allowed in a primary key, else raise InvalidRequest."""
    if is_multi_cell(column.type):
        what = "user-defined" if isinstance(column.type, UserType) else "collection"
        raise InvalidRequest(
            f"Invalid non-frozen {what} type for PRIMARY KEY component {column.name}"
        )
    if refused := {_COUNTER, _DURATION}.intersection(parts(column.type)):
        raise InvalidRequest(
            f"{refused.pop()} type is not supported for PRIMARY KEY part {column.name}"
        )
    return column


def check_counters(table: Table) -> None:
    """Reject a counter table that has a default TTL, or non-counter columns outside the key."""
    if table.is_counter and table.default_ttl:
        raise InvalidRequest("Cannot set default_time_to_live on a table with counters")
    for column in table.columns if table.is_counter else ():
        if not column.is_key:
            check_counter(column, among_counters=True)


def check_counter(column: Column, among_counters: bool) -> None:
    """If `among_counters`, reject a column that is not a counter; otherwise, reject a counter."""
    if among_counters and column.type != _COUNTER:
        raise ConfigurationError(
            f"Cannot add a non counter column ({column.name}) in a counter column family"
        )
    if not among_counters and column.type == _COUNTER:
        raise ConfigurationError(
            f"Cannot add a counter column ({column.name}) in a non counter column family"
        )


def check_static(static: bool, has_clustering: bool) -> Kind:
    """Return the kind of a non-key column; a static column requires clustering columns."""
    if static and not has_clustering:
        raise InvalidRequest(
            "Static columns are only useful (and thus allowed) if the table has at least one "
            "clustering column"
        )
    return Kind.STATIC if static else Kind.REGULAR
