"""Executes CREATE, ALTER and DROP TYPE."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from cdc_reader.cql.types import CqlType, UserType, is_multi_cell, parts, rebuilt
from cdc_reader.testing.embedded.ddl.columns import in_keyspace
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.schema.catalog import Catalog, Keyspace, SchemaChange
from cdc_reader.testing.embedded.schema.names import resolve_type


def change_type(
    statement: ast.CreateType | ast.AddField | ast.RenameFields | ast.DropType,
    keyspace: str,
    catalog: Catalog,
) -> SchemaChange | None:
    """Execute CREATE, ALTER or DROP TYPE."""
    match statement:
        case ast.CreateType():
            return _create(statement, keyspace, catalog)
        case ast.DropType():
            return _drop(statement, keyspace, catalog)
        case _:
            return _alter(statement, keyspace, catalog)


def _create(statement: ast.CreateType, keyspace: str, catalog: Catalog) -> SchemaChange | None:
    """Execute CREATE TYPE; return None if IF NOT EXISTS leaves the schema unchanged."""
    types, name = catalog.modifiable(keyspace).types, statement.type.name
    if name in types:
        if statement.if_not_exists:
            return None
        raise InvalidRequest(f"A user type of name {keyspace}.{name} already exists")
    fields: dict[str, CqlType] = {}
    for field, text in statement.fields:
        if field in fields:
            raise InvalidRequest(f"Duplicate field name {field.encode().hex()} in type {name}")
        fields[field] = _field_type(text, keyspace, catalog)
    types[name] = UserType(keyspace, name, tuple(fields.items()))
    return catalog.changed(SchemaChange("CREATED", "TYPE", keyspace, name))


def _alter(
    statement: ast.AddField | ast.RenameFields, keyspace: str, catalog: Catalog
) -> SchemaChange:
    """Execute ALTER TYPE, and change every table and type that uses the type."""
    space, name = catalog.modifiable(keyspace), statement.type.name
    if name not in space.types:
        raise InvalidRequest(f"No user type named {keyspace}.{name} exists.")
    old = space.types[name]
    if isinstance(statement, ast.AddField):
        added = (statement.name, _field_type(statement.field_type, keyspace, catalog))
        if statement.name in dict(old.fields):
            raise InvalidRequest(
                f"Cannot add new field {statement.name} to type {keyspace}.{name}: a field of "
                "the same name already exists"
            )
        _check_addable(added, old, space)
        fields = (*old.fields, added)
    else:
        fields = _renamed(old, dict(statement.renames))
    _replace(space, evolve(old, fields=fields))
    return catalog.changed(SchemaChange("UPDATED", "TYPE", keyspace, name))


def _drop(statement: ast.DropType, keyspace: str, catalog: Catalog) -> SchemaChange | None:
    """Execute DROP TYPE; raise InvalidRequest if a table or type uses it."""
    space, name = catalog.modifiable(keyspace), statement.type.name
    if name not in space.types:
        if statement.if_exists:
            return None
        raise InvalidRequest(f"No user type named {keyspace}.{name} exists.")
    for user in _users(space, name):
        raise InvalidRequest(
            f"Cannot drop user type {keyspace}.{name} as it is still used by {user}"
        )
    del space.types[name]
    return catalog.changed(SchemaChange("DROPPED", "TYPE", keyspace, name))


def _field_type(text: str, keyspace: str, catalog: Catalog) -> CqlType:
    found = resolve_type(catalog, keyspace, text)
    if isinstance(found, UserType) and is_multi_cell(found):
        raise InvalidRequest("A user type cannot contain non-frozen user type fields")
    if str(found) == "counter":
        raise InvalidRequest("A user type cannot contain counters")
    return found


def _check_addable(added: tuple[str, CqlType], old: UserType, space: Keyspace) -> None:
    """Reject a field whose type contains `old`, and any field if a partition key contains `old`."""
    name, full_name = old.name, f"{space.name}.{old.name}"
    if _mentions(added[1], name):
        raise InvalidRequest(
            f"Cannot add new field {added[0]} of type {in_keyspace(added[1])} to type {full_name} "
            "as this would create a circular reference"
        )
    for table in space.tables.values():
        for column in table.partition_key:
            if _mentions(column.type, name):
                raise InvalidRequest(
                    f"Cannot add new field to type {full_name} because it is used in the partition "
                    f"key column {column.name} of table {space.name}.{table.name}"
                )


def _renamed(old: UserType, renames: dict[str, str]) -> tuple[tuple[str, CqlType], ...]:
    for name in renames:
        if name not in dict(old.fields):
            raise InvalidRequest(f"Unknown field {name} in type {old.keyspace}.{old.name}")
    fields = tuple((renames.get(name, name), field) for name, field in old.fields)
    if len(dict(fields)) != len(fields):
        raise InvalidRequest(f"Duplicate field name in type {old.keyspace}.{old.name}")
    return fields


def _users(space: Keyspace, name: str) -> Iterator[str]:
    """Yield descriptions of a type's users: other types, then tables, newest first."""
    for other in space.types.values():
        if other.name != name and _mentions(other, name):
            yield f"user type {space.name}.{other.name}"
    for table in reversed(space.tables.values()):
        if any(_mentions(column.type, name) for column in table.columns):
            yield f"table {space.name}.{table.name}"


def _mentions(cql_type: CqlType, name: str) -> bool:
    return any(isinstance(part, UserType) and part.name == name for part in parts(cql_type))


def _replace(space: Keyspace, new: UserType) -> None:
    """Replace the definition wherever the type is used."""
    for name, each in space.types.items():
        replaced = _replaced(each, new)
        if isinstance(replaced, UserType):
            space.types[name] = replaced
    for name, table in space.tables.items():
        if any(_mentions(column.type, new.name) for column in table.columns):
            columns = (evolve(c, type=_replaced(c.type, new)) for c in table.columns)
            space.tables[name] = evolve(table, columns=tuple(columns))


def _replaced(cql_type: CqlType, new: UserType) -> CqlType:
    def change(part: CqlType) -> CqlType:
        if isinstance(part, UserType) and part.name == new.name:
            return evolve(new, frozen=part.frozen)
        return part

    return rebuilt(cql_type, change)
