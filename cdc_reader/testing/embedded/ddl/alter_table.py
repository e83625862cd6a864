"""Executes ALTER TABLE, and updates the log of a table with CDC."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from cdc_reader.cql.schema import DELETED_PREFIX, REMOVED_PREFIX
from cdc_reader.cql.types import is_multi_cell
from cdc_reader.testing.embedded.codec.validation import COMPATIBLE
from cdc_reader.testing.embedded.ddl.cdc_log import (
    Log,
    check_cdc,
    check_not_just_dropped,
    columns_are_the_log_s_own,
)
from cdc_reader.testing.embedded.ddl.columns import (
    check_counter,
    check_counters,
    check_static,
    column_type,
)
from cdc_reader.testing.embedded.ddl.properties import cdc_options, table_options
from cdc_reader.testing.embedded.errors import (
    ConfigurationError,
    InvalidRequest,
    InvalidSyntax,
    Unauthorized,
)
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.schema.catalog import Catalog, SchemaChange
from cdc_reader.testing.embedded.schema.names import resolve_type
from cdc_reader.testing.embedded.schema.table import Column, Table
from cdc_reader.testing.embedded.storage.database import Database

AlterTable = (
    ast.AddColumns | ast.DropColumns | ast.RenameColumns | ast.AlterColumnType | ast.AlterProperties
)


def alter_table(
    statement: AlterTable, keyspace: str, catalog: Catalog, database: Database, now_us: int
) -> SchemaChange:
    """Alter a table and its log."""
    table = catalog.table(keyspace, statement.table.name)
    if catalog.keyspace(keyspace).system:
        raise Unauthorized(f"Cannot ALTER <table {keyspace}.{table.name}>")
    is_of_columns = not isinstance(statement, ast.AlterProperties)
    if is_of_columns and table.is_cdc_log and catalog.profile.protects_log_columns:
        renaming = isinstance(statement, ast.RenameColumns)
        raise columns_are_the_log_s_own(renaming, Log(catalog).base_of(table) is not None)
    # Each change of a schema has a later time than the one before, whatever the clock says.
    at = max(now_us, table.altered_us + 1)
    altered = evolve(_altered(table, statement, catalog, now_us), altered_us=at)
    check_cdc(altered, catalog)
    if isinstance(statement, ast.DropColumns):
        _forget(statement.columns, (altered, Log(catalog).of(table)), database)
    return _store(altered, catalog, database, now_us)


def _altered(table: Table, statement: AlterTable, catalog: Catalog, now_us: int) -> Table:
    match statement:
        case ast.AlterProperties(properties=properties):
            return _with_properties(table, properties, catalog)
        case ast.AddColumns(columns=columns):
            return _with_added(table, columns, catalog, now_us)
        case ast.DropColumns(columns=names, timestamp=timestamp):
            if timestamp is not None and not catalog.profile.tablets:  # both are new in 6.0
                raise InvalidSyntax("line 1:0 no viable alternative at input 'USING'")
            return _without(table, names, now_us if timestamp is None else timestamp)
        case ast.RenameColumns(renames=renames):
            return _renamed(table, renames)
        case ast.AlterColumnType(column=name, type=text):
            return _with_type(table, name, text, catalog)


def _store(table: Table, catalog: Catalog, database: Database, now_us: int) -> SchemaChange:
    catalog.keyspaces[table.keyspace].tables[table.name] = table
    before = Log(catalog).of(table)
    changes = list(Log(catalog).follow(table, now_us))
    if before is not None and Log(catalog).of(table) is None:
        database.drop(before.id)
    updated = catalog.changed(SchemaChange("UPDATED", "TABLE", table.keyspace, table.name))
    for change in changes:
        catalog.changed(change)
    return updated


def _with_properties(table: Table, properties: ast.Properties, catalog: Catalog) -> Table:
    if properties.clustering_order:
        raise InvalidRequest("Cannot alter clustering order of a table")
    if "id" in properties.values:
        raise ConfigurationError("Cannot alter table id.")
    cdc = cdc_options(properties, catalog.profile, altering=True) or table.cdc_options
    options = {**table.options, **table_options(properties, catalog, table.keyspace)}
    altered = evolve(table, cdc_options=cdc, options=options)
    check_counters(altered)
    return altered


def _with_added(
    table: Table, definitions: Iterable[ast.ColumnDefinition], catalog: Catalog, now_us: int
) -> Table:
    guarded = table.cdc.enabled and catalog.profile.delays_column_reuse
    for definition in definitions:
        if definition.name in table.by_name:
            raise InvalidRequest(
                f"Invalid column name {definition.name} because it conflicts with an existing "
                "column"
            )
        found = column_type(definition, table.keyspace, catalog)
        before, _ = table.dropped.get(definition.name, (None, 0))
        if is_multi_cell(found) and before is not None and before != found:
            raise InvalidRequest(
                f"Cannot add a collection with the name {definition.name} because a collection "
                "with the same name and a different type has already been used in the past"
            )
        if guarded:
            check_not_just_dropped(definition.name, Log(catalog).of(table), now_us)
        kind = check_static(definition.static, bool(table.clustering))
        column = Column(definition.name, found, kind)
        check_counter(column, among_counters=table.is_counter)
        table = evolve(table, columns=(*table.columns, column))
    return table


def _without(table: Table, names: Iterable[str], dropped_us: int) -> Table:
    for name in names:
        if name not in table.by_name:
            raise InvalidRequest(f"Column {name} was not found in table {table.name}")
        column = table.by_name[name]
        if column.is_key:
            raise InvalidRequest(f"Cannot drop PRIMARY KEY part {name}")
        dropped = {**table.dropped, name: (column.type, dropped_us)}
        columns = tuple(c for c in table.columns if c is not column)
        table = evolve(table, columns=columns, dropped=dropped)
    return table


def _forget(names: Iterable[str], tables: Iterable[Table | None], database: Database) -> None:
    """Remove the cells of dropped columns, so that new columns of the same name are empty."""
    gone = {prefix + name for name in names for prefix in ("", DELETED_PREFIX, REMOVED_PREFIX)}
    for table in tables:
        for _, partition in database.partitions(table) if table else ():
            for row in (partition.static, *partition.rows.values()):
                for name in gone & row.cells.keys():
                    del row.cells[name]


def _renamed(table: Table, renames: Iterable[tuple[str, str]]) -> Table:
    for old, new in renames:
        if old not in table.by_name:
            raise InvalidRequest(f"Cannot rename unknown column {old} in table {table.name}")
        if new in table.by_name:
            raise InvalidRequest(
                f"Cannot rename column {old} to {new} in table {table.name}; another column of "
                "that name already exist"
            )
        if not table.by_name[old].is_key:
            raise InvalidRequest(f"Cannot rename non PRIMARY KEY part {old}")
        columns = (evolve(c, name=new) if c.name == old else c for c in table.columns)
        table = evolve(table, columns=tuple(columns))
    return table


def _with_type(table: Table, name: str, text: str, catalog: Catalog) -> Table:
    """Change a column's type to one for which its existing values are valid."""
    if name not in table.by_name:
        raise InvalidRequest(f"Column {name} was not found in table {table.name}")
    column, wanted = table.by_name[name], resolve_type(catalog, table.keyspace, text)
    found = column.type
    becomes_blob = str(wanted) == "blob" and not is_multi_cell(found) and not table.is_counter
    if found != wanted and not becomes_blob and (str(found), str(wanted)) not in COMPATIBLE:
        raise ConfigurationError(
            f"Cannot change {name} from type {found} to type {wanted}: types are incompatible."
        )
    if found != wanted and column.is_key:
        raise InvalidRequest(f"ALTER of a key column's type, {name}, is not supported by this "
                             "server")  # fmt: skip
    columns = (evolve(c, type=wanted) if c is column else c for c in table.columns)
    return evolve(table, columns=tuple(columns))
