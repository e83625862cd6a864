"""Tests rows against the relations of WHERE and the conditions of IF."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from cdc_reader.cql.types import CqlType, MapType, freeze
from cdc_reader.testing.embedded.codec.order import sort_key
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.ast import Relation
from cdc_reader.testing.embedded.grammar.terms import Term
from cdc_reader.testing.embedded.query.elements import (
    RowView,
    element_reader,
    entries,
    entry_types,
)
from cdc_reader.testing.embedded.query.model import Execution, Scope
from cdc_reader.testing.embedded.query.result import ColumnSpec
from cdc_reader.testing.embedded.query.terms import (
    ORDERINGS,
    bound_value,
    check_ordered,
    listed,
    several,
)
from cdc_reader.testing.embedded.schema.table import Column, Kind

Test = Callable[[RowView, Execution], bool]
_Read = Callable[[RowView, Execution], bytes | None]
_Compare = Callable[[bytes | None, Execution], bool]
_EMPTY = b"\0\0\0\0"


def row_test(relation: Relation, scope: Scope) -> Test:
    """Return a row test for a relation of WHERE, in which nothing equals null."""
    column = scope.column(relation.column)
    read, spec = _subject(column, relation.key, scope)
    compare = _comparison(relation, spec, scope)
    return lambda view, execution: compare(read(view, execution), execution)


def condition_test(relation: Relation, scope: Scope) -> Test:
    """Return a row test for a condition of IF, in which null equals null and empty collections."""
    column = scope.column(relation.column, "Unknown identifier {}")
    read, spec = _subject(column, relation.key, scope)
    check_ordered(relation, spec, scope, "conditions")
    is_collection = relation.key is None and column.is_multi_cell and not column.is_user_type

    def wanted(value: bytes | None) -> bytes | None:
        return None if is_collection and value == _EMPTY else value

    if relation.operator == "IN":
        several_values = listed(relation.value, spec, scope)
        same, profile = _same(spec.type), scope.catalog.profile

        def held(view: RowView, execution: Execution) -> bool:
            value, given = read(view, execution), several_values(execution)
            if value is None and not profile.new_words and b"" in given:
                return True  # some drivers send an empty value for null
            return any(same(value, wanted(each)) for each in given)

        return held
    bound, compare = bound_value(relation.value, spec, scope), _conditions(relation, spec.type)
    return lambda view, execution: compare(read(view, execution), wanted(bound(execution)))


def _conditions(
    relation: Relation, of_type: CqlType
) -> Callable[[bytes | None, bytes | None], bool]:
    match relation.operator:
        case "=":
            return _same(of_type)
        case "!=":
            same = _same(of_type)
            return lambda value, other: not same(value, other)
        case operator if operator in ORDERINGS:
            order, holds = sort_key(of_type), ORDERINGS[operator]

            def compare(value: bytes | None, other: bytes | None) -> bool:
                if other is None:
                    raise InvalidRequest(f'Invalid comparison with null for operator "{operator}"')
                return value is not None and holds(order(value), order(other))

            return compare
        case operator:
            raise InvalidRequest(f"{operator} is not supported by this server")


def _same(of_type: CqlType) -> Callable[[bytes | None, bytes | None], bool]:
    """Return a function that compares two values of this type for equality."""
    order = sort_key(of_type)

    def same(value: bytes | None, other: bytes | None) -> bool:
        if value is None or other is None or value == other:
            return value == other
        return bool(order(value) == order(other))

    return same


def _subject(column: Column, key: Term | None, scope: Scope) -> tuple[_Read, ColumnSpec]:
    """Return a function that reads a relation's column or element, and the type of the value."""
    if key is None:
        return lambda view, _: view.value(column), scope.spec(column.name, freeze(column.type))
    return element_reader(column, key, scope)


def _comparison(relation: Relation, spec: ColumnSpec, scope: Scope) -> _Compare:
    match relation.operator:
        case "IN":
            candidates, equal = several(relation.value, spec, scope), _same(spec.type)
            return lambda value, execution: any(equal(value, c) for c in candidates(execution))
        case "CONTAINS" | "CONTAINS KEY":
            return _contains(relation, spec, scope)
    wanted, compare = bound_value(relation.value, spec, scope), _conditions(relation, spec.type)
    return lambda value, execution: (
        value is not None and (other := wanted(execution)) is not None and compare(value, other)
    )


def _contains(relation: Relation, spec: ColumnSpec, scope: Scope) -> _Compare:
    of_key, types = relation.operator == "CONTAINS KEY", entry_types(spec.type)
    if types is None or (of_key and not isinstance(spec.type, MapType)):
        name = relation.column
        kind = f"KEY on non-map column {name}" if of_key else f'on non-collection column "{name}"'
        raise InvalidRequest(f"Cannot use CONTAINS {kind}")
    part, label = (0, "key") if of_key else (1, "value")
    same, element = _same(types[part]), freeze(types[part])
    wanted = bound_value(relation.value, scope.spec(f"{label}({relation.column})", element), scope)
    return lambda value, execution: (
        value is not None
        and any(same(entry[part], wanted(execution)) for entry in entries(spec.type, value))
    )


@frozen
class Conditions:
    """The conditions of an IF clause.

    `exists` is True for IF EXISTS, False for IF NOT EXISTS, and None if `tests` check columns
    instead. The result of the statement contains `columns`.
    """

    columns: tuple[Column, ...]
    exists: bool | None = None
    tests: tuple[Test, ...] = ()

    @property
    def names_regular(self) -> bool:
        """True if a condition tests a regular column."""
        return self.exists is None and any(c.kind is Kind.REGULAR for c in self.columns)

    def hold(self, view: RowView, row_exists: bool, execution: Execution) -> bool:
        """Return True if all conditions hold."""
        if self.exists is not None:
            return row_exists is self.exists
        return all(test(view, execution) for test in self.tests)


def conditions(
    relations: Sequence[Relation], scope: Scope, exists: bool | None = None
) -> Conditions | None:
    """Return the conditions of a statement; None if it has none."""
    if exists is not None:
        return Conditions(scope.table.select_order, exists)
    if not relations:
        return None
    named = {relation.column for relation in relations}
    for name in named:
        if scope.column(name, "Unknown identifier {}").is_key:
            raise InvalidRequest(f"PRIMARY KEY column '{name}' cannot have IF conditions")
    return Conditions(
        tuple(column for column in scope.table.select_order if column.name in named),
        tests=tuple(condition_test(relation, scope) for relation in relations),
    )
