"""The rows of a partition that a statement selects, as ranges in clustering order.

Each relation narrows a list of disjoint ranges. A restriction that does not follow the clustering
order is not a range, so it is used as a filter or rejected.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from attrs import frozen

from cdc_reader.cql.types import TupleType, freeze
from cdc_reader.testing.embedded.codec.order import read_fields
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.ast import Relation, TupleRelation
from cdc_reader.testing.embedded.grammar.terms import Term, TupleTerm
from cdc_reader.testing.embedded.query.keys import check_product
from cdc_reader.testing.embedded.query.model import MOST_KEYS, Execution, Scope
from cdc_reader.testing.embedded.query.result import ColumnSpec
from cdc_reader.testing.embedded.query.terms import (
    Candidates,
    bound_value,
    candidates,
    present,
    several,
)
from cdc_reader.testing.embedded.schema.table import Column, Table
from cdc_reader.testing.embedded.storage.position import AFTER, BEFORE, Bound, Position

ClusteringKey = tuple[bytes, ...]
Values = Callable[[Execution], ClusteringKey | None]
SLICES = (">", ">=", "<", "<=")


@frozen
class ClusteringRange:
    """The rows between two bounds in clustering order."""

    start: Bound
    end: Bound

    def positions(self, table: Table) -> tuple[Position, Position]:
        keys = table.clustering_sort_keys
        return self.start.position(keys), self.end.position(keys)


@frozen
class Slice:
    """``(a, b) operator values`` with <, <=, > or >= on adjacent clustering columns."""

    columns: tuple[Column, ...]
    operator: str
    values: Values


@frozen
class ClusteringRestriction:
    """The rows whose key prefix matches ``=`` and IN, narrowed by slices; by default, all rows.

    A key prefix has `width` columns. `tuples` returns the prefixes that a multi-column relation
    allows. If `tuples` is None, `prefix` contains a function for each column, which returns the
    values that the column may have.
    """

    table: Table
    prefix: tuple[Candidates, ...] = ()
    tuples: Callable[[Execution], list[ClusteringKey]] | None = None
    width: int = 0
    slices: tuple[Slice, ...] = ()

    @property
    def is_open(self) -> bool:
        """True if all rows are selected."""
        return not self.width and not self.slices

    @property
    def names_rows(self) -> bool:
        """True if ``=`` and IN specify full clustering keys."""
        return not self.slices and self.width == len(self.table.clustering)

    def prefixes(self, execution: Execution) -> list[ClusteringKey]:
        """Return the keys or key prefixes that ``=`` and IN specify."""
        if self.tuples is not None:
            return self.tuples(execution)
        columns = [part(execution) for part in self.prefix]
        check_product(columns, MOST_KEYS)
        return list(itertools.product(*columns))

    def ranges(self, execution: Execution) -> list[ClusteringRange]:
        """Return the non-empty ranges in clustering order."""
        slices = [(each, each.values(execution)) for each in self.slices]
        found: list[ClusteringRange] = []
        for prefix in self.prefixes(execution):
            ranges = [ClusteringRange(Bound(prefix, BEFORE), Bound(prefix, AFTER))]
            for each, values in slices:
                ranges = self._intersect(ranges, _sliced(prefix, each, values))
            found += ranges
        return sorted(found, key=lambda found_range: self._place(found_range.start))

    def _intersect(
        self, left: list[ClusteringRange], right: list[ClusteringRange]
    ) -> list[ClusteringRange]:
        pieces: list[ClusteringRange] = []
        for mine, other in itertools.product(left, right):
            start = max(mine.start, other.start, key=self._place)
            end = min(mine.end, other.end, key=self._place)
            if self._place(start) < self._place(end):
                pieces.append(ClusteringRange(start, end))
        return pieces

    def _place(self, bound: Bound) -> Position:
        return bound.position(self.table.clustering_sort_keys)


def _sliced(
    prefix: ClusteringKey, each: Slice, values: ClusteringKey | None
) -> list[ClusteringRange]:
    """Return a slice's range under a prefix; several ranges if the columns' sort orders differ.

    For example, (a, b) > (1, 2) then becomes "a > 1", and "a = 1 and b > 2".
    """
    if values is None:
        return []
    if len({column.descending for column in each.columns}) == 1:
        return [_range(prefix, values, each.operator, each.columns[0].descending)]
    last = len(values) - 1
    return [
        _range(
            prefix + values[:depth],
            values[depth : depth + 1],
            each.operator if depth == last else each.operator[0],
            each.columns[depth].descending,
        )
        for depth in range(len(values))
    ]


def _range(
    prefix: ClusteringKey, values: ClusteringKey, operator: str, descending: bool
) -> ClusteringRange:
    """Return the range under `prefix` in which ``(next columns) operator values`` holds."""
    start, end, edge = Bound(prefix, BEFORE), Bound(prefix, AFTER), prefix + values
    is_inclusive = operator.endswith("=")
    if operator.startswith(">") != descending:
        return ClusteringRange(Bound(edge, BEFORE if is_inclusive else AFTER), end)
    return ClusteringRange(start, Bound(edge, AFTER if is_inclusive else BEFORE))


def single_columns(relations: dict[str, list[Relation]], scope: Scope) -> ClusteringRestriction:
    """Return the restriction for single-column relations that follow the clustering order."""
    prefix: list[Candidates] = []
    slices: list[Slice] = []
    for column in scope.table.clustering[: len(relations)]:
        given, spec = relations[column.name], scope.column_spec(column)
        if any(relation.operator in ("=", "IN") for relation in given):
            prefix.append(candidates(given, spec, scope))
            continue
        for relation in given:
            values = _single(bound_value(relation.value, spec, scope))
            slices.append(Slice((column,), relation.operator, values))
    return ClusteringRestriction(
        scope.table, tuple(prefix), width=len(prefix), slices=tuple(slices)
    )


def tuples(relations: Sequence[TupleRelation], scope: Scope) -> ClusteringRestriction:
    """Return the restriction for multi-column relations: one ``=`` or IN, or slices."""
    slices: list[Slice] = []
    for relation in relations:
        columns = _first_columns(relation, scope)
        if relation.operator in SLICES:
            values = _tuple(relation.value, columns, scope)
            slices.append(Slice(columns, relation.operator, values))
        elif relation.operator in ("=", "IN") and len(relations) == 1:
            keys = _exact_tuples(relation, columns, scope)
            return ClusteringRestriction(scope.table, tuples=keys, width=len(columns))
        else:
            raise InvalidRequest(
                f"Unsupported combination of relations on ({', '.join(relation.columns)})"
            )
    return ClusteringRestriction(scope.table, slices=tuple(slices))


def _single(value: Callable[[Execution], bytes | None]) -> Values:
    def values(execution: Execution) -> ClusteringKey | None:
        found = value(execution)
        return None if found is None else (found,)

    return values


def _first_columns(relation: TupleRelation, scope: Scope) -> tuple[Column, ...]:
    columns = tuple(scope.column(name) for name in relation.columns)
    if columns != scope.table.clustering[: len(columns)]:
        raise InvalidRequest(
            "Clustering columns may not be skipped in multi-column relations. They should appear "
            f"in the PRIMARY KEY order. Got ({', '.join(relation.columns)})"
        )
    return columns


def _exact_tuples(
    relation: TupleRelation, columns: tuple[Column, ...], scope: Scope
) -> Callable[[Execution], list[ClusteringKey]]:
    if relation.operator == "=":
        key = _tuple(relation.value, columns, scope)
        return lambda execution: [] if (found := key(execution)) is None else [found]
    spec = _tuple_spec(columns, scope)
    if isinstance(relation.value, TupleTerm) and all(
        isinstance(element, TupleTerm) for element in relation.value.elements
    ):
        keys = [_tuple(element, columns, scope) for element in relation.value.elements]
        return lambda execution: list(
            dict.fromkeys(k for key in keys if (k := key(execution)) is not None)
        )
    wanted = several(relation.value, spec, scope)
    return lambda execution: [_split(value, columns) for value in wanted(execution)]


def _tuple(term: Term, columns: tuple[Column, ...], scope: Scope) -> Values:
    """Compile ``(1, 2)`` or a bound tuple; its value is None if an element is null."""
    if not isinstance(term, TupleTerm):
        whole = bound_value(term, _tuple_spec(columns, scope), scope)
        return lambda execution: (
            None if (value := whole(execution)) is None else _split(value, columns)
        )
    if len(term.elements) != len(columns):
        raise InvalidRequest(
            f"Expected {len(columns)} elements in value tuple, but got {len(term.elements)}"
        )
    parts = [
        bound_value(element, scope.column_spec(column), scope)
        for element, column in zip(term.elements, columns, strict=True)
    ]

    def values(execution: Execution) -> ClusteringKey | None:
        found = present([part(execution) for part in parts])
        return tuple(found) if len(found) == len(parts) else None

    return values


def _tuple_spec(columns: tuple[Column, ...], scope: Scope) -> ColumnSpec:
    names = ",".join(column.name for column in columns)
    return scope.spec(f"({names})", TupleType(tuple(freeze(column.type) for column in columns)))


def _split(value: bytes, columns: tuple[Column, ...]) -> ClusteringKey:
    parts = present(read_fields(value))
    if len(parts) != len(columns):
        raise InvalidRequest(
            f"Expected {len(columns)} elements in value tuple, but got {len(parts)}"
        )
    return tuple(parts)
