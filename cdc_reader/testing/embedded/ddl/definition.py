"""Executes any schema statement."""

from __future__ import annotations

from cdc_reader.testing.embedded.ddl.alter_table import AlterTable, alter_table
from cdc_reader.testing.embedded.ddl.keyspaces import (
    alter_keyspace,
    create_keyspace,
    drop_keyspace,
)
from cdc_reader.testing.embedded.ddl.tables import create_table, drop_table
from cdc_reader.testing.embedded.ddl.types import alter_type, create_type, drop_type
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.schema.catalog import Catalog, SchemaChange
from cdc_reader.testing.embedded.schema.names import qualified
from cdc_reader.testing.embedded.storage.database import Database

KeyspaceStatement = ast.CreateKeyspace | ast.AlterKeyspace | ast.DropKeyspace
TypeStatement = ast.CreateType | ast.AddField | ast.RenameFields | ast.DropType


def define(
    statement: ast.SchemaStatement,
    current_keyspace: str | None,
    catalog: Catalog,
    database: Database,
    now_us: int,
) -> SchemaChange | None:
    """Change the catalog and notify its listeners; None if IF [NOT] EXISTS leaves it unchanged."""
    match statement:
        case ast.CreateKeyspace() | ast.AlterKeyspace() | ast.DropKeyspace():
            return _define_keyspace(statement, catalog, database)
        case ast.CreateType() | ast.AddField() | ast.RenameFields() | ast.DropType():
            keyspace, _ = qualified(statement.type, current_keyspace)
            return _define_type(statement, keyspace, catalog)
        case _:
            keyspace, _ = qualified(statement.table, current_keyspace)
            return _define_table(statement, keyspace, catalog, database, now_us)


def _define_keyspace(
    statement: KeyspaceStatement, catalog: Catalog, database: Database
) -> SchemaChange | None:
    match statement:
        case ast.CreateKeyspace():
            return create_keyspace(statement, catalog)
        case ast.AlterKeyspace():
            return alter_keyspace(statement, catalog)
        case ast.DropKeyspace():
            return drop_keyspace(statement, catalog, database)


def _define_type(statement: TypeStatement, keyspace: str, catalog: Catalog) -> SchemaChange | None:
    match statement:
        case ast.CreateType():
            return create_type(statement, keyspace, catalog)
        case ast.DropType():
            return drop_type(statement, keyspace, catalog)
        case _:
            return alter_type(statement, keyspace, catalog)


def _define_table(
    statement: ast.CreateTable | ast.DropTable | AlterTable,
    keyspace: str,
    catalog: Catalog,
    database: Database,
    now_us: int,
) -> SchemaChange | None:
    match statement:
        case ast.CreateTable():
            return create_table(statement, keyspace, catalog, now_us)
        case ast.DropTable():
            return drop_table(statement, keyspace, catalog, database)
        case _:
            return alter_table(statement, keyspace, catalog, database, now_us)
