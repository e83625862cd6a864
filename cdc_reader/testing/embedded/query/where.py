"""WHERE taken apart: partition keys or tokens, clustering ranges, what is left to filter by."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.ast import (
    AnyRelation,
    Relation,
    TokenRelation,
    TupleRelation,
)
from cdc_reader.testing.embedded.grammar.terms import Marker
from cdc_reader.testing.embedded.query import clustering
from cdc_reader.testing.embedded.query.clustering import SLICES, ClusteringRestriction
from cdc_reader.testing.embedded.query.keys import (
    ExactKeys,
    KeyRestriction,
    TokenRange,
    token_range,
)
from cdc_reader.testing.embedded.query.scope import Scope
from cdc_reader.testing.embedded.query.values import one, several
from cdc_reader.testing.embedded.schema.table import Column, Kind

_FITTING = ("=", "IN", *SLICES)


@frozen
class Where:
    """What a WHERE clause says. `filters` are relations that rows must be looked at for.

    `skipped` names a clustering column that is restricted though one before it is not.
    """

    keys: KeyRestriction
    clustering: ClusteringRestriction
    filters: tuple[Relation, ...] = ()
    skipped: tuple[str, str] | None = None

    @property
    def key_is_exact(self) -> bool:
        return isinstance(self.keys, ExactKeys)


def analyse(relations: Sequence[AnyRelation], scope: Scope) -> Where:
    """Take a WHERE clause apart; InvalidRequest for columns and operators that cannot be."""
    single = _by_column(relations, scope)
    keys, key_filters = _keys(relations, single, scope)
    rows, row_filters, skipped = _rows(relations, single, scope)
    values = [
        relation
        for name, each in single.items()
        if not scope.table.by_name[name].is_key
        for relation in each
    ]
    return Where(keys, rows, (*key_filters, *row_filters, *values), skipped)


def partition_key_markers(relations: Sequence[AnyRelation], scope: Scope) -> tuple[int, ...]:
    """The bind variables that give the partition key, if all of it is bound by ``=``."""
    bound = {
        relation.column: relation.value.index
        for relation in relations
        if isinstance(relation, Relation)
        and relation.operator == "="
        and isinstance(relation.value, Marker)
    }
    names = [column.name for column in scope.table.partition_key]
    return tuple(bound[name] for name in names) if bound.keys() >= set(names) else ()


def _by_column(relations: Sequence[AnyRelation], scope: Scope) -> dict[str, list[Relation]]:
    single: dict[str, list[Relation]] = {}
    for relation in relations:
        if isinstance(relation, Relation):
            scope.column(relation.column)
            single.setdefault(relation.column, []).append(relation)
    for name, each in single.items():
        _check_repeated(name, each)
    return single


def _check_repeated(name: str, relations: list[Relation]) -> None:
    operators = [relation.operator for relation in relations if relation.key is None]
    if len(operators) > 1 and ("=" in operators or "IN" in operators):
        raise InvalidRequest(
            f"{name} cannot be restricted by more than one relation if it includes an Equal"
        )
    for ends, which in (((">", ">="), "start"), (("<", "<="), "end")):
        if sum(operator in ends for operator in operators) > 1:
            raise InvalidRequest(
                f"More than one restriction was found for the {which} bound on {name}"
            )


def _keys(
    relations: Sequence[AnyRelation], single: dict[str, list[Relation]], scope: Scope
) -> tuple[KeyRestriction, list[Relation]]:
    columns = scope.table.partition_key
    tokens = [relation for relation in relations if isinstance(relation, TokenRelation)]
    restricted = [r for column in columns for r in single.get(column.name, ())]
    if tokens:
        if restricted:
            names = ", ".join(relation.column for relation in restricted)
            raise InvalidRequest(
                f'Columns "{names}" cannot be restricted by both a normal relation and a token '
                "relation"
            )
        return token_range(tokens, scope), []
    if len(restricted) == len(columns) and all(r.operator in ("=", "IN") for r in restricted):
        parts = tuple(
            (one if r.operator == "=" else several)(
                r.value, scope.column_spec(scope.column(r.column)), scope
            )
            for r in restricted
        )
        return ExactKeys(scope.table, parts), []
    for relation in restricted:
        if relation.operator in SLICES and len(restricted) == len(columns):
            raise InvalidRequest(
                "Only EQ and IN relation are supported on the partition key "
                "(unless you use the token() function or allow filtering)"
            )
    return TokenRange(), restricted


def _rows(
    relations: Sequence[AnyRelation], single: dict[str, list[Relation]], scope: Scope
) -> tuple[ClusteringRestriction, list[Relation], tuple[str, str] | None]:
    table = scope.table
    multiple = [relation for relation in relations if isinstance(relation, TupleRelation)]
    for relation in multiple:
        for name in relation.columns:
            _check_clustering(scope.column(name))
    restricted = {c.name: single[c.name] for c in table.clustering if c.name in single}
    if multiple and restricted:
        raise InvalidRequest(
            "Mixing single column relations and multi column relations on clustering columns "
            "is not allowed"
        )
    if multiple:
        return clustering.tuples(multiple, scope), [], None
    fitting = _fitting(table.clustering, restricted)
    rest = {name: each for name, each in restricted.items() if name not in fitting}
    skipped = None
    if rest:
        first = next(iter(rest))
        position = table.by_name[first].position
        skipped = (first, table.clustering[max(position - 1, 0)].name)
    filters = [relation for each in rest.values() for relation in each]
    return clustering.single_columns(fitting, scope), filters, skipped


def _fitting(
    columns: Sequence[Column], restricted: dict[str, list[Relation]]
) -> dict[str, list[Relation]]:
    """The relations that follow the clustering order: ``=`` or IN, then slices of one column."""
    fitting: dict[str, list[Relation]] = {}
    for column in columns:
        relations = restricted.get(column.name)
        if not relations or any(r.operator not in _FITTING or r.key for r in relations):
            break
        fitting[column.name] = relations
        if relations[0].operator in SLICES:
            break
    return fitting


def _check_clustering(column: Column) -> None:
    if column.kind is not Kind.CLUSTERING:
        raise InvalidRequest(
            "Multi-column relations can only be applied to clustering columns but was applied "
            f"to: {column.name}"
        )
