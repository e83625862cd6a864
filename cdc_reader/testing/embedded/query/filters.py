"""Comparing what a row holds with what a relation or condition asks."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from cdc_reader.cql_type import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    UserType,
    freeze,
)
from cdc_reader.testing.embedded.codec.order import sort_key
from cdc_reader.testing.embedded.codec.validation import read_fields
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.ast import Relation
from cdc_reader.testing.embedded.grammar.terms import Term
from cdc_reader.testing.embedded.query.elements import list_elements, map_entries
from cdc_reader.testing.embedded.query.execution import Execution
from cdc_reader.testing.embedded.query.result import ColumnSpec
from cdc_reader.testing.embedded.query.row_view import RowView
from cdc_reader.testing.embedded.query.scope import Scope
from cdc_reader.testing.embedded.query.values import bound_value, several
from cdc_reader.testing.embedded.schema.table import Column

Test = Callable[[RowView, Execution], bool]
_Read = Callable[[RowView, Execution], bytes | None]
_Compare = Callable[[bytes | None, Execution], bool]

_ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def row_test(relation: Relation, scope: Scope, null_equals_null: bool = False) -> Test:
    """Whether a row fulfils a relation.

    In WHERE nothing equals null; in IF (`null_equals_null`) a missing value does.
    """
    column = scope.column(relation.column, "Unknown identifier {}")
    read, spec = _subject(column, relation.key, scope)
    compare = _comparison(relation, spec, scope, null_equals_null)
    return lambda view, execution: compare(read(view, execution), execution)


def _subject(column: Column, key: Term | str | None, scope: Scope) -> tuple[_Read, ColumnSpec]:
    """What is compared: a column, an element or a field."""
    if key is None:
        return lambda view, _: view.value(column), scope.spec(column.name, freeze(column.type))
    if isinstance(key, str):
        return _field(column, key, scope)
    match column.type:
        case MapType(key_type, value_type):
            return _element(column, key, (key_type, value_type), scope)
        case ListType(value_type):
            return _element(column, key, (Native("int"), value_type), scope)
    raise InvalidRequest(f"Invalid element access syntax for column {column.name}")


def _field(column: Column, name: str, scope: Scope) -> tuple[_Read, ColumnSpec]:
    fields = column.type.fields if isinstance(column.type, UserType) else ()
    names = [field for field, _ in fields]
    if name not in names:
        raise InvalidRequest(f"{column.name} of type {column.type} has no field {name}")
    index = names.index(name)

    def read(view: RowView, _: Execution) -> bytes | None:
        value = view.value(column)
        cells = [] if value is None else read_fields(value)
        return cells[index] if index < len(cells) else None

    return read, scope.spec(f"{column.name}.{name}", freeze(fields[index][1]))


def _element(
    column: Column, key: Term, types: tuple[CqlType, CqlType], scope: Scope
) -> tuple[_Read, ColumnSpec]:
    label = "idx" if isinstance(column.type, ListType) else "key"
    wanted = bound_value(key, scope.spec(f"{label}({column.name})", freeze(types[0])), scope)

    def read(view: RowView, execution: Execution) -> bytes | None:
        value, place = view.value(column), wanted(execution)
        if value is None or place is None:
            return None
        if isinstance(column.type, MapType):
            return dict(map_entries(value)).get(place)
        elements, index = list_elements(value), int.from_bytes(place, "big", signed=True)
        return elements[index] if 0 <= index < len(elements) else None

    return read, scope.spec(f"value({column.name})", freeze(types[1]))


def _comparison(
    relation: Relation, spec: ColumnSpec, scope: Scope, null_equals_null: bool
) -> _Compare:
    match relation.operator:
        case "IN":
            candidates = several(relation.value, spec, scope)
            return lambda value, execution: value in candidates(execution)
        case "CONTAINS" | "CONTAINS KEY":
            return _contains(relation, spec, scope)
        case "=" | "!=":
            return _equality(relation, spec, scope, null_equals_null)
        case ">" | ">=" | "<" | "<=":
            return _ordering(relation, spec, scope)
        case other:
            raise InvalidRequest(f"{other} is not supported by this server")


def _equality(
    relation: Relation, spec: ColumnSpec, scope: Scope, null_equals_null: bool
) -> _Compare:
    wanted = bound_value(relation.value, spec, scope)
    is_equal = relation.operator == "="

    def compare(value: bytes | None, execution: Execution) -> bool:
        other = wanted(execution)
        if not null_equals_null and (value is None or other is None):
            return False
        return (value == other) is is_equal

    return compare


def _ordering(relation: Relation, spec: ColumnSpec, scope: Scope) -> _Compare:
    wanted = bound_value(relation.value, spec, scope)
    order, holds = sort_key(spec.type), _ORDERINGS[relation.operator]

    def compare(value: bytes | None, execution: Execution) -> bool:
        other = wanted(execution)
        return value is not None and other is not None and holds(order(value), order(other))

    return compare


def _contains(relation: Relation, spec: ColumnSpec, scope: Scope) -> _Compare:
    of_key = relation.operator == "CONTAINS KEY"
    match spec.type:
        case MapType(key, value):
            element, position = (key, 0) if of_key else (value, 1)
        case SetType(element) | ListType(element) if not of_key:
            position = 0
        case _:
            raise InvalidRequest(
                f"Cannot use {relation.operator} on column {relation.column} of type {spec.type}"
            )
    is_map = isinstance(spec.type, MapType)
    wanted = bound_value(
        relation.value, scope.spec(f"value({relation.column})", freeze(element)), scope
    )

    def compare(value: bytes | None, execution: Execution) -> bool:
        if value is None:
            return False
        if is_map:
            return wanted(execution) in [entry[position] for entry in map_entries(value)]
        return wanted(execution) in list_elements(value)

    return compare
