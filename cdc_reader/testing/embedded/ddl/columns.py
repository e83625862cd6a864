"""Columns of CREATE TABLE and ALTER TABLE: which types may stand where."""

from __future__ import annotations

from cdc_reader.cql_type import (
    CqlType,
    Native,
    TupleType,
    UserType,
    VectorType,
    children,
    is_multi_cell,
    parts,
)
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.schema.names import resolve_type
from cdc_reader.testing.embedded.schema.table import Column, Kind

_COUNTER, _DURATION = Native("counter"), Native("duration")


def column_type(definition: ast.ColumnDefinition, keyspace: str, catalog: Catalog) -> CqlType:
    """The type of a column, its parts frozen where they have to be."""
    found = resolve_type(catalog, keyspace, definition.type)
    for part in parts(found):
        if isinstance(part, TupleType | VectorType):
            continue
        for inner in children(part):
            if is_multi_cell(inner):
                what = "UDTs" if isinstance(inner, UserType) else "collections"
                raise InvalidRequest(
                    f"Non-frozen {what} are not allowed inside collections: {found}"
                    if not isinstance(part, UserType)
                    else f"Non-frozen user types or collections are not allowed inside {found}"
                )
    return found


def key_column(column: Column) -> Column:
    """The column, if its type may be in a primary key."""
    if is_multi_cell(column.type):
        what = "user-defined" if isinstance(column.type, UserType) else "collection"
        raise InvalidRequest(
            f"Invalid non-frozen {what} type for PRIMARY KEY component {column.name}"
        )
    if column.type in (_COUNTER, _DURATION):
        raise InvalidRequest(
            f"{column.type} type is not supported for PRIMARY KEY part {column.name}"
        )
    return column


def check_counters(columns: tuple[Column, ...]) -> None:
    """Outside the key a table has only counters or none."""
    values = [column.type == _COUNTER for column in columns if not column.is_key]
    if any(values) and not all(values):
        raise InvalidRequest("Cannot mix counter and non counter columns in the same table")


def check_static(static: bool, has_clustering: bool) -> Kind:
    """The kind of a column outside the key."""
    if static and not has_clustering:
        raise InvalidRequest(
            "Static columns are only useful (and thus allowed) if the table has at least one "
            "clustering column"
        )
    return Kind.STATIC if static else Kind.REGULAR
