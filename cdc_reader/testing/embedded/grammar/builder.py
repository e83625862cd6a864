"""Builds syntax trees from Lark's parse trees, with one method per rule of `cql.lark`."""

from __future__ import annotations

from typing import Any

from lark import Token, v_args

from cdc_reader.testing.embedded.errors import InvalidRequest, InvalidSyntax
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.grammar.schema_builder import SchemaBuilder
from cdc_reader.testing.embedded.grammar.selectors import (
    CallSelector,
    CastSelector,
    ColumnSelector,
    ElementSelector,
    FieldSelector,
    MetadataSelector,
    Selector,
)
from cdc_reader.testing.embedded.grammar.term_builder import TermBuilder
from cdc_reader.testing.embedded.grammar.terms import Null, Term, TupleTerm

Element = Any  # a Term in brackets or a field's name


@v_args(inline=True)
class AstBuilder(SchemaBuilder, TermBuilder):
    """Builds one statement and numbers its bind markers; each statement needs a new builder."""

    # SELECT

    json = distinct = allow_filtering = group_by = SchemaBuilder.present
    all_columns = selected_list = order_by = where = SchemaBuilder.several
    selected = ast.Selected
    column_selector = ColumnSelector
    field_selector = FieldSelector

    def select(self, *parts: Any) -> ast.Select | ast.Unsupported:
        json, distinct, selected, table, where, group_by, order, *rest = parts
        if group_by:
            return ast.Unsupported("SELECT ... GROUP BY")
        return ast.Select(table, selected, where or (), distinct, json, order or (), *rest)

    def element_selector(self, selector: Selector, key: Term) -> ElementSelector:
        if not isinstance(selector, ColumnSelector):
            raise InvalidRequest("An element of anything but a column is not supported by this "
                                 "server")  # fmt: skip
        return ElementSelector(selector.name, key)

    def called_name(self, name: str) -> str:
        return name.lower() if isinstance(name, Token) else name

    def called_in(self, keyspace: Selector, name: str) -> str:
        """Return the `name` of a built-in function; reject a keyspace other than `system`."""
        if keyspace != ColumnSelector("system"):
            raise InvalidRequest("A user-defined function is not supported by this server")
        return name

    def call_selector(self, name: str, *arguments: Any) -> Selector:
        match name, arguments:
            case (("writetime" | "ttl"), (ColumnSelector(column),)):
                return MetadataSelector(name, column)
            case (("writetime" | "ttl"), _):
                raise InvalidRequest(f"{name} of an element is not supported by this server")
        return CallSelector(name, tuple(a for a in arguments if a is not None))

    def count_integer(self, name: str, number: Token) -> CallSelector:
        if name != "count" or number != "1":
            raise InvalidSyntax(f"Only COUNT(1) is supported, got {name.upper()}({number})")
        return CallSelector(name, ())

    def cast_selector(self, _word: Token, selector: Selector, to: str) -> CastSelector:
        return CastSelector(selector, to)

    def ordering(self, column: str, descending: bool | None) -> tuple[str, bool]:
        return column, bool(descending)

    def direction(self, word: Token) -> bool:
        return word.type == "DESC"

    # WHERE and IF

    column_relation = ast.Relation
    tuple_relation = ast.TupleRelation
    ident_list = SchemaBuilder.several

    def element_relation(self, column: str, key: Term, operator: str, value: Term) -> ast.Relation:
        return ast.Relation(column, operator, value, key)

    def not_in(self, *_: Any) -> ast.Relation:
        raise InvalidRequest("NOT IN is not supported by this server")

    def is_not_null(self, column: str) -> ast.Relation:
        return ast.Relation(column, "IS NOT", Null())

    def token_relation(
        self, _word: Token, columns: tuple[str, ...], operator: str, value: Term
    ) -> ast.TokenRelation:
        return ast.TokenRelation(columns, operator, value)

    def in_list(self, *terms: Term | None) -> TupleTerm:
        return TupleTerm(tuple(t for t in terms if t is not None))

    def operator(self, *words: Token) -> str:
        return " ".join(words).upper()

    # INSERT, UPDATE, DELETE, BATCH

    default_unset = SchemaBuilder.present
    deletions = term_list = SchemaBuilder.several
    deletion = ast.Deletion
    change_shortly = ast.Assignment
    insert = ast.Insert

    def insert_json(self, table: ast.TableName, _word: Token, *rest: Any) -> ast.InsertJson:
        return ast.InsertJson(table, *rest)

    def default_null(self) -> bool:
        return False

    def update(self, table: ast.TableName, using: Any, *rest: Any) -> ast.Update:
        _word, *assignments, where, clause = rest
        return ast.Update(table, tuple(assignments), where, using, *(clause or ()))

    def delete(self, deletions: Any, table: ast.TableName, *rest: Any) -> ast.Delete:
        using, where, clause = rest
        return ast.Delete(table, deletions or (), where, using, *(clause or ()))

    def assign(self, column: str, key: Element | None, value: Term) -> ast.Assignment:
        return ast.Assignment(column, ast.Change.SET, value, key)

    def assign_list_id(self, column: str, key: Term, value: Term) -> ast.Assignment:
        return ast.Assignment(column, ast.Change.SET, value, key, by_id=True)

    def change(self, column: str, again: str, change: ast.Change, value: Term) -> ast.Assignment:
        return ast.Assignment(_same(column, again), change, value)

    def prepend(self, column: str, value: Term, again: str) -> ast.Assignment:
        return ast.Assignment(_same(column, again), ast.Change.PREPEND, value)

    def sign(self, word: Token) -> ast.Change:
        return ast.Change(word[0])

    def using(self, *options: tuple[str, Term]) -> ast.Using:
        given = dict(options)
        return ast.Using(given.get("ttl"), given.get("timestamp"), given.get("timeout"))

    def using_option(self, name: Token, term: Term) -> tuple[str, Term]:
        return name.lower(), term

    def when(self, *conditions: ast.Relation) -> tuple[tuple[ast.Relation, ...], bool]:
        return conditions, False

    def when_exists(self, _word: Token) -> tuple[tuple[ast.Relation, ...], bool]:
        return (), True

    def batch(
        self, kind: ast.BatchKind | None, using: Any, *statements: ast.Modification
    ) -> ast.Batch:
        return ast.Batch(kind or ast.BatchKind.LOGGED, statements, using)

    def batch_kind(self, word: Token) -> ast.BatchKind:
        return ast.BatchKind[word.type]

    # Names

    table_name = ast.TableName

    def ident(self, token: Token) -> str:
        if token.type == "QUOTED":
            return token[1:-1].replace('""', '"')
        return token.lower()


def _same(column: str, again: str) -> str:
    if column != again:
        raise InvalidSyntax(
            f"Only expressions of the form {column} = {column} +<value> are supported."
        )
    return column
