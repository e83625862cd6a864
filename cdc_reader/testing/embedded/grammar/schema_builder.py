"""Builds schema statements from Lark's trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen
from lark import Token, Transformer, v_args

from cdc_reader.cql.names import bare_or_quoted
from cdc_reader.testing.embedded.errors import SyntaxError  # noqa: A004 - the protocol's own word
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.grammar.terms import Constant, ConstantKind, MapTerm, Term

_Alteration = Callable[[ast.TableName], ast.Statement]


@v_args(inline=True)
class SchemaBuilder(Transformer[Token, ast.Statement]):
    """The rules for keyspaces, tables and types."""

    def if_not_exists(self, _word: Token) -> bool:
        return True

    def if_exists(self, _word: Token) -> bool:
        return True

    # Keyspaces

    def create_keyspace(
        self, if_not_exists: bool | None, name: str, properties: ast.Properties | None
    ) -> ast.CreateKeyspace:
        return ast.CreateKeyspace(name, properties or ast.Properties(), bool(if_not_exists))

    def alter_keyspace(self, name: str, properties: ast.Properties) -> ast.AlterKeyspace:
        return ast.AlterKeyspace(name, properties)

    def drop_keyspace(self, if_exists: bool | None, name: str) -> ast.DropKeyspace:
        return ast.DropKeyspace(name, bool(if_exists))

    def use(self, keyspace: str) -> ast.Use:
        return ast.Use(keyspace)

    def truncate(self, table: ast.TableName) -> ast.Truncate:
        return ast.Truncate(table)

    # Tables

    def create_table(
        self, if_not_exists: bool | None, table: ast.TableName, *parts: Any
    ) -> ast.CreateTable:
        *elements, properties = parts
        return ast.CreateTable(
            table,
            tuple(_column(e) for e in elements if isinstance(e, ast.ColumnDefinition | _KeyColumn)),
            tuple(_key(e) for e in elements if isinstance(e, ast.PrimaryKey | _KeyColumn)),
            properties or ast.Properties(),
            bool(if_not_exists),
        )

    def column_definition(
        self, name: str, cql_type: str, static: bool | None
    ) -> ast.ColumnDefinition:
        return ast.ColumnDefinition(name, cql_type, bool(static))

    def key_column(self, column: ast.ColumnDefinition) -> _KeyColumn:
        return _KeyColumn(column)

    def static(self) -> bool:
        return True

    def primary_key(self, partition: tuple[str, ...], *clustering: str) -> ast.PrimaryKey:
        return ast.PrimaryKey(partition, clustering)

    def partition_key(self, names: str | tuple[str, ...]) -> tuple[str, ...]:
        return (names,) if isinstance(names, str) else names

    def alter_table(self, table: ast.TableName, alteration: _Alteration) -> ast.Statement:
        return alteration(table)

    def add_columns(self, *columns: ast.ColumnDefinition) -> _Alteration:
        return lambda table: ast.AddColumns(table, columns)

    def drop_columns(self, *columns: str) -> _Alteration:
        return lambda table: ast.DropColumns(table, columns)

    def alter_column_type(self, column: str, cql_type: str) -> _Alteration:
        return lambda table: ast.AlterColumnType(table, column, cql_type)

    def rename_columns(self, *renames: tuple[str, str]) -> _Alteration:
        return lambda table: ast.RenameColumns(table, renames)

    def alter_properties(self, properties: ast.Properties) -> _Alteration:
        return lambda table: ast.AlterProperties(table, properties)

    def rename(self, old: str, new: str) -> tuple[str, str]:
        return old, new

    def drop_table(self, if_exists: bool | None, table: ast.TableName) -> ast.DropTable:
        return ast.DropTable(table, bool(if_exists))

    # User-defined types

    def create_type(
        self, if_not_exists: bool | None, name: ast.TableName, *fields: tuple[str, str] | None
    ) -> ast.CreateType:
        return ast.CreateType(name, tuple(filter(None, fields)), bool(if_not_exists))

    def field(self, name: str, cql_type: str) -> tuple[str, str]:
        return name, cql_type

    def alter_type(self, name: ast.TableName, alteration: _Alteration) -> ast.Statement:
        return alteration(name)

    def add_field(self, field: str, cql_type: str) -> _Alteration:
        return lambda name: ast.AddField(name, field, cql_type)

    def rename_fields(self, *renames: tuple[str, str]) -> _Alteration:
        return lambda name: ast.RenameFields(name, renames)

    def drop_type(self, if_exists: bool | None, name: ast.TableName) -> ast.DropType:
        return ast.DropType(name, bool(if_exists))

    # DESCRIBE

    def describe_all(self, what: Token, _internals: bool | None) -> ast.Describe:
        return ast.Describe(what.upper())

    def describe_keyspace(
        self, only: bool | None, name: str | None, _internals: bool | None
    ) -> ast.Describe:
        named = None if name is None else ast.TableName(None, name)
        return ast.Describe("KEYSPACE", named, bool(only))

    def describe_element(
        self, what: Token, name: ast.TableName, _internals: bool | None
    ) -> ast.Describe:
        return ast.Describe(what.upper(), name)

    def describe_any(self, name: ast.TableName, _internals: bool | None) -> ast.Describe:
        return ast.Describe("ANY", name)

    def only(self) -> bool:
        return True

    def internals(self) -> bool:
        return True

    # Properties

    def properties(self, *parts: ast.Properties) -> ast.Properties:
        values: dict[str, ast.PropertyValue] = {}
        for name, value in (entry for part in parts for entry in part.values.items()):
            if name in values:
                raise SyntaxError(f"Multiple definition for property '{name}'")
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

    # Types stay text: only the catalog knows what a name stands for

    def plain_type(self, name: str, *arguments: str | None) -> str:
        given = [argument for argument in arguments if argument is not None]
        return f"{bare_or_quoted(name)}<{', '.join(given)}>" if given else bare_or_quoted(name)

    def set_type(self, _word: Token, element: str) -> str:
        return f"set<{element}>"

    def qualified_type(self, keyspace: str, name: str) -> str:
        return f"{bare_or_quoted(keyspace)}.{bare_or_quoted(name)}"

    def dimension(self, token: Token) -> str:
        return str(token)


@frozen
class _KeyColumn:
    """``column type PRIMARY KEY``."""

    column: ast.ColumnDefinition


def _column(element: ast.ColumnDefinition | _KeyColumn) -> ast.ColumnDefinition:
    return element.column if isinstance(element, _KeyColumn) else element


def _key(element: ast.PrimaryKey | _KeyColumn) -> ast.PrimaryKey:
    return ast.PrimaryKey((element.column.name,)) if isinstance(element, _KeyColumn) else element


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
            raise SyntaxError(f"Multiple definition for property {_text(key)}")
        entries[_text(key)] = _text(entry)
    return entries


def _text(term: Term) -> str:
    if not isinstance(term, Constant):
        raise SyntaxError("a map of properties holds constants alone")
    return term.text
