"""The requirements for a table that is to become a copy of another table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve

from cdc_reader.cql.names import TableName, quoted
from cdc_reader.cql.schema import Column, ColumnKind, ImageMode, TableSchema
from cdc_reader.cql.types import CqlType, ListType, UserType, children, is_multi_cell, rebuilt
from cdc_reader.errors import UnsupportedTableError

UserTypes = Mapping[str, UserType]
"""User-defined types of a keyspace, by name."""


def check_copy(source: TableSchema, target: TableSchema, types: UserTypes) -> None:
    """Raise UnsupportedTableError, with the CQL of a suitable table, if `target` is unsuitable.

    The target may have additional columns outside its key, and its columns may be in any order.
    `types` are the needed user-defined types that the target's keyspace already has.
    """
    if target.cdc.enabled and target.id is not None and target.id == source.id:
        raise UnsupportedTableError(
            f"table {target.name} at the target is the source table itself, as its id {target.id} "
            "shows: give a table of another cluster, or another name"
        )
    if target.cdc.enabled:
        raise UnsupportedTableError(
            f"table {target.name} has CDC turned on, so it rejects writes older than its "
            f"streams: turn it off, ALTER TABLE {target.name.cql} WITH cdc = {{'enabled': false}}"
        )
    if found := list(misfits(source, target)):
        raise UnsupportedTableError(
            f"table {target.name} cannot be a copy of {source.name}: {', '.join(found)}; alter "
            f"it, or create it anew: {creation(source, target.name, types)}"
        )


def check_initial_copy(source: TableSchema) -> None:
    """Raise UnsupportedTableError unless the source's rows can be copied exactly.

    The log identifies the elements of a list by ids, which images show but a SELECT does not.
    """
    lists = [c for c in source.columns if isinstance(c.type, ListType) and is_multi_cell(c.type)]
    if lists and source.cdc.preimage is ImageMode.OFF and not source.cdc.postimage:
        raise UnsupportedTableError(
            f"table {source.name} has a list, {quoted(lists[0].name)}; only the log's images "
            "identify its elements: set preimage to true in its cdc options, then start again"
        )


def needed_types(schema: TableSchema) -> list[UserType]:
    """Return the user-defined types of the columns, each after the types it contains."""
    return list(dict.fromkeys(found for c in schema.columns for found in _user_types(c.type)))


def creation(schema: TableSchema, name: TableName, types: UserTypes) -> str:
    """Return one line of CQL that creates missing types, and a table `name` as in `schema`.

    The table has the columns and the key of `schema`. `types` are the existing types of the
    keyspace of `name`. Raises UnsupportedTableError if one of them differs from the type needed.
    """
    needed = needed_types(schema)
    for user_type in needed:
        if (there := types.get(user_type.name)) is not None and _shape(there) != _shape(user_type):
            raise UnsupportedTableError(
                f"type {TableName(name.keyspace, user_type.name)} is {_fields(there)}, and "
                f"{schema.name} needs {_fields(user_type)}: alter the type, or create the copy "
                "in another keyspace"
            )
    missing = [user_type for user_type in needed if user_type.name not in types]
    statements = [_type_creation(user_type, name.keyspace) for user_type in missing]
    return "; ".join([*statements, _table_creation(schema, name)])


def misfits(source: TableSchema, target: TableSchema) -> Iterator[str]:
    """Describe columns that the target lacks or defines differently, and additional key columns."""
    there = {column.name: column for column in target.columns}
    for column in source.columns:
        found = there.pop(column.name, None)
        if found is None:
            yield f"it lacks column {quoted(column.name)} {column.type}"
        elif _place(found) != _place(column):
            yield f"column {quoted(column.name)} is {_role(found)}, not {_role(column)}"
        elif _shape(found.type) != _shape(column.type):
            yield f"column {quoted(column.name)} is of type {found.type}, not {column.type}"
    yield from (f"its key has {quoted(c.name)} too" for c in there.values() if c.is_key)


def _place(column: Column) -> tuple[ColumnKind, int]:
    return column.kind, column.position


def _role(column: Column) -> str:
    role = column.kind.value.replace("_", " ")
    return f"{role} column {column.position + 1}" if column.is_key else role


def _shape(cql_type: CqlType) -> CqlType:
    """Return the type without the keyspaces and names of its user-defined types."""
    return rebuilt(cql_type, _unnamed)


def _unnamed(cql_type: CqlType) -> CqlType:
    return evolve(cql_type, keyspace="", name="") if isinstance(cql_type, UserType) else cql_type


def _user_types(cql_type: CqlType) -> Iterator[UserType]:
    """Yield the user-defined types in a type, each after the types that it contains."""
    for part in children(cql_type):
        yield from _user_types(part)
    if isinstance(cql_type, UserType):
        yield evolve(cql_type, frozen=False)


def _type_creation(user_type: UserType, keyspace: str) -> str:
    return f"CREATE TYPE {TableName(keyspace, user_type.name).cql} {_fields(user_type)}"


def _fields(user_type: UserType) -> str:
    return f"({', '.join(f'{quoted(name)} {part}' for name, part in user_type.fields)})"


def _table_creation(schema: TableSchema, name: TableName) -> str:
    columns = ", ".join(map(_definition, schema.columns))
    return f"CREATE TABLE {name.cql} ({columns}, PRIMARY KEY ({_key(schema)})){_order(schema)}"


def _definition(column: Column) -> str:
    static = " static" if column.kind is ColumnKind.STATIC else ""
    return f"{quoted(column.name)} {column.type}{static}"


def _key(schema: TableSchema) -> str:
    partition, clustering = (
        [quoted(column.name) for column in columns]
        for columns in (schema.partition_key, schema.clustering)
    )
    return ", ".join([f"({', '.join(partition)})", *clustering])


def _order(schema: TableSchema) -> str:
    """Return the clause for the clustering order, or empty text if it is the default."""
    if not any(column.descending for column in schema.clustering):
        return ""
    return f" WITH CLUSTERING ORDER BY ({clustering_order(schema)})"


def clustering_order(schema: TableSchema) -> str:
    """Return the order of the rows of a partition, as in CQL."""
    order = (f"{quoted(c.name)} {'DESC' if c.descending else 'ASC'}" for c in schema.clustering)
    return ", ".join(order)
