"""Executes any schema statement."""

from __future__ import annotations

from cdc_reader.testing.embedded.ddl.alter_table import alter_table
from cdc_reader.testing.embedded.ddl.keyspaces import alter_keyspace, create_keyspace, drop_keyspace
from cdc_reader.testing.embedded.ddl.tables import create_table, drop_table
from cdc_reader.testing.embedded.ddl.types import change_type
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.schema.catalog import Catalog, SchemaChange
from cdc_reader.testing.embedded.schema.names import qualified
from cdc_reader.testing.embedded.storage.database import Database


def define(  # noqa: PLR0911 - one return per kind of statement
    statement: ast.SchemaStatement,
    current_keyspace: str | None,
    catalog: Catalog,
    database: Database,
    now_us: int,
) -> SchemaChange | None:
    """Change the catalog and notify its listeners; return None if it remains unchanged."""
    match statement:
        case ast.CreateKeyspace():
            return create_keyspace(statement, catalog)
        case ast.AlterKeyspace():
            return alter_keyspace(statement, catalog)
        case ast.DropKeyspace():
            return drop_keyspace(statement, catalog, database)
        case ast.CreateType() | ast.AddField() | ast.RenameFields() | ast.DropType():
            keyspace, _ = qualified(statement.type, current_keyspace)
            return change_type(statement, keyspace, catalog)
    keyspace, _ = qualified(statement.table, current_keyspace)
    match statement:
        case ast.CreateTable():
            return create_table(statement, keyspace, catalog, now_us)
        case ast.DropTable():
            return drop_table(statement, keyspace, catalog, database)
        case _:
            return alter_table(statement, keyspace, catalog, database, now_us)
