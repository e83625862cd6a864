"""Builds schema statements from Lark's parse trees."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from lark import Token, Transformer, v_args

from cdc_reader.cql.names import bare_or_quoted
from cdc_reader.testing.embedded.errors import InvalidRequest, InvalidSyntax
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.grammar.terms import Constant, ConstantKind, MapTerm, Term


@v_args(inline=True)
class SchemaBuilder(Transformer[Token, ast.Statement]):
    """Builds schema statements, with one method per grammar rule."""

    def present(self, *_words: Any) -> bool:
        """Return True, because an optional part of the statement is present."""
        return True

    def several(self, *parts: Any) -> tuple[Any, ...]:
        """Return the parts of a list or pair as a tuple."""
        return parts

    if_not_exists = if_exists = static = only = internals = present
    field = rename = entry = field_value = several

    # Keyspaces

    alter_keyspace = ast.AlterKeyspace
    create_keyspace = ast.CreateKeyspace
    drop_keyspace = ast.DropKeyspace
    use = ast.Use
    truncate = ast.Truncate

    # Tables

    alter_column_type = ast.AlterColumnType
    alter_properties = ast.AlterProperties
    column_definition = ast.ColumnDefinition
    drop_table = ast.DropTable

    def create_table(
        self, if_not_exists: Any, table: ast.TableName, *parts: Any
    ) -> ast.CreateTable:
        *elements, properties = parts
        columns = [part for part in elements if isinstance(part, ast.ColumnDefinition)]
        keys = [part for part in elements if isinstance(part, ast.PrimaryKey)]
        keys += [ast.PrimaryKey((column.name,)) for column in columns if column.is_key]
        return ast.CreateTable(table, tuple(columns), tuple(keys), properties, if_not_exists)

    def key_column(self, column: ast.ColumnDefinition) -> ast.ColumnDefinition:
        return evolve(column, is_key=True)

    def primary_key(self, partition: tuple[str, ...], *clustering: str) -> ast.PrimaryKey:
        return ast.PrimaryKey(partition, clustering)

    def partition_key(self, names: str | tuple[str, ...]) -> tuple[str, ...]:
        return (names,) if isinstance(names, str) else names

    def add_columns(self, table: ast.TableName, *columns: ast.ColumnDefinition) -> ast.AddColumns:
        return ast.AddColumns(table, columns)

    def drop_columns(self, table: ast.TableName, *parts: Any) -> ast.DropColumns:
        *columns, number = parts
        if number and (len(number) > 20 or not -(1 << 63) <= int(number) < 1 << 63):
            raise InvalidRequest(f"marshaling error: Invalid number format '{number}'")
        return ast.DropColumns(table, tuple(columns), int(number) if number else None)

    def rename_columns(self, table: ast.TableName, *renames: tuple[str, str]) -> ast.RenameColumns:
        return ast.RenameColumns(table, renames)

    # User-defined types

    add_field = ast.AddField
    drop_type = ast.DropType

    def create_type(
        self, if_not_exists: Any, name: ast.TableName, *fields: tuple[str, str] | None
    ) -> ast.CreateType:
        return ast.CreateType(name, tuple(filter(None, fields)), if_not_exists)

    def rename_fields(self, name: ast.TableName, *renames: tuple[str, str]) -> ast.RenameFields:
        return ast.RenameFields(name, renames)

    # DESCRIBE

    def describe_everything(self, what: Token, internals: Any) -> ast.Describe:
        return ast.Describe(what.upper(), internals=internals)

    def describe_keyspace(self, only: Any, name: str | None, internals: Any) -> ast.Describe:
        named = ast.TableName(None, name) if name else None
        return ast.Describe("KEYSPACE", named, only, internals)

    def describe_element(self, what: str, name: ast.TableName, internals: Any) -> ast.Describe:
        return ast.Describe(what.upper(), name, internals=internals)

    def describe_any(self, name: ast.TableName, internals: Any) -> ast.Describe:
        return self.describe_element("ANY", name, internals)

    # Properties

    def properties(self, *parts: ast.Properties) -> ast.Properties:
        values: dict[str, ast.PropertyValue] = {}
        for name, value in (entry for part in parts for entry in part.values.items()):
            if name in values:
                raise InvalidSyntax(f"Multiple definition for property '{name}'")
            values[name] = value
        return ast.Properties(
            values,
            tuple(order for part in parts for order in part.clustering_order),
            any(part.compact_storage for part in parts),
        )

    def named_property(self, name: str, value: Constant | MapTerm) -> ast.Properties:
        return ast.Properties({name: _property_value(value)})

    def clustering_order(self, *orderings: tuple[str, bool]) -> ast.Properties:
        return ast.Properties(clustering_order=orderings)

    def compact_storage(self) -> ast.Properties:
        return ast.Properties(compact_storage=True)

    def empty_map(self) -> MapTerm:
        return MapTerm(())

    # Types remain text, because only the catalog can resolve their names

    dimension = str

    def plain_type(self, name: str, *arguments: str | None) -> str:
        given = [argument for argument in arguments if argument is not None]
        return f"{bare_or_quoted(name)}<{', '.join(given)}>" if given else bare_or_quoted(name)

    def set_type(self, _word: Token, element: str) -> str:
        return f"set<{element}>"

    def qualified_type(self, keyspace: str, name: str) -> str:
        return f"{bare_or_quoted(keyspace)}.{bare_or_quoted(name)}"


def _property_value(value: Constant | MapTerm) -> ast.PropertyValue:
    if isinstance(value, MapTerm):
        return _map(value)
    match value.kind:
        case ConstantKind.INTEGER:
            return int(value.text)
        case ConstantKind.FLOAT:
            return float(value.text)
        case ConstantKind.BOOLEAN:
            return value.text == "true"
        case _:
            return value.text


def _map(value: MapTerm) -> dict[str, str]:
    entries: dict[str, str] = {}
    for key, entry in value.entries:
        if _text(key) in entries:
            raise InvalidSyntax(f"Multiple definition for property {_text(key)}")
        entries[_text(key)] = _text(entry)
    return entries


def _text(term: Term) -> str:
    if not isinstance(term, Constant):
        raise InvalidSyntax("a map of properties holds constants alone")
    return term.text
