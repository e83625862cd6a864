"""Analyzes WHERE: partition keys or tokens, clustering ranges, and filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from cdc_reader.cql.types import ListType, MapType
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.ast import (
    AnyRelation,
    Relation,
    TokenRelation,
    TupleRelation,
)
from cdc_reader.testing.embedded.grammar.terms import Marker, Term, written
from cdc_reader.testing.embedded.query import clustering
from cdc_reader.testing.embedded.query.clustering import SLICES, ClusteringRestriction
from cdc_reader.testing.embedded.query.keys import (
    ExactKeys,
    KeyRestriction,
    TokenRange,
    definition,
    token_range,
)
from cdc_reader.testing.embedded.query.model import Scope
from cdc_reader.testing.embedded.query.terms import candidates, check_ordered
from cdc_reader.testing.embedded.schema.table import Column, Kind

_FITTING = ("=", "IN", *SLICES)


@frozen
class Where:
    """An analyzed WHERE clause; `filters` are the relations to test on each row.

    `skipped` is an error message if a clustering column is restricted but the column before it is
    not.
    """

    keys: KeyRestriction
    clustering: ClusteringRestriction
    filters: tuple[Relation, ...] = ()
    skipped: str | None = None

    @property
    def key_is_exact(self) -> bool:
        return isinstance(self.keys, ExactKeys)


def analyse(relations: Sequence[AnyRelation], scope: Scope) -> Where:
    """Analyze a WHERE clause; raise InvalidRequest for invalid columns and operators."""
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
    """Return the indexes of the partition key's bind variables.

    The result is empty unless ``=`` binds every column of the partition key to a variable.
    """
    equal = (r for r in relations if isinstance(r, Relation) and r.operator == "=")
    return bound_key({relation.column: relation.value for relation in equal}, scope)


def bound_key(values: Mapping[str, Term], scope: Scope) -> tuple[int, ...]:
    """Return the indexes of the partition key's bind variables.

    The result is empty unless `values` binds every column of the partition key to a variable.
    """
    terms = [values.get(column.name) for column in scope.table.partition_key]
    indexes = tuple(term.index for term in terms if isinstance(term, Marker))
    return indexes if len(indexes) == len(terms) else ()


def _by_column(relations: Sequence[AnyRelation], scope: Scope) -> dict[str, list[Relation]]:
    single: dict[str, list[Relation]] = {}
    for relation in relations:
        if isinstance(relation, Relation):
            column = scope.column(relation.column)
            check_ordered(relation, scope.column_spec(column), scope, "restrictions")
            _check_operator(relation, column)
            single.setdefault(relation.column, []).append(relation)
    return single


def _check_operator(relation: Relation, column: Column) -> None:
    if relation.key is not None:
        _check_element(relation, column)
    elif column.is_multi_cell and "CONTAINS" not in relation.operator:
        raise InvalidRequest(
            f"Non-frozen UDT column '{column.name}' ({column.type}) cannot be restricted by any "
            "relation"
            if column.is_user_type
            else f"Collection column '{column.name}' ({column.type}) cannot be restricted by a "
            f"'{relation.operator}' relation"
        )
    match relation.operator:
        case "!=":
            raise InvalidRequest(
                f'Unsupported "!=" relation: {column.name} != {written(relation.value)}'
            )
        case "IS NOT":
            raise InvalidRequest(
                f"restriction '{column.name} IS NOT null' is only supported in materialized view "
                "creation"
            )
        case "LIKE" if str(column.type) not in ("text", "ascii"):
            raise InvalidRequest(
                f"LIKE is allowed only on string types, which {column.name} is not"
            )


def _check_element(relation: Relation, column: Column) -> None:
    words = {ListType: ("List element", "list"), MapType: ("Map-entry", "map")}
    what, kind = words.get(type(column.type), ("", ""))
    if not kind:
        raise InvalidRequest(f"Column {column.name} cannot be subscripted")
    if not column.is_multi_cell:
        raise InvalidRequest(
            f"{what} equality predicates on frozen {kind} column {column.name} are not supported"
        )
    if relation.operator != "=":
        raise InvalidRequest("Only EQ relations are supported on map/list entries")


def _keys(
    relations: Sequence[AnyRelation], single: dict[str, list[Relation]], scope: Scope
) -> tuple[KeyRestriction, list[Relation]]:
    columns = scope.table.partition_key
    tokens = [relation for relation in relations if isinstance(relation, TokenRelation)]
    restricted = [r for column in columns for r in single.get(column.name, ())]
    if tokens:
        if restricted:
            names = ", ".join(definition(scope.column(r.column)) for r in restricted)
            raise InvalidRequest(
                f'Columns "{names}" cannot be restricted by both a normal relation and a token '
                "relation"
            )
        return token_range(tokens, scope), []
    is_exact = all(column.name in single for column in columns)
    if is_exact and all(r.operator in ("=", "IN") for r in restricted):
        parts = tuple(candidates(single[c.name], scope.column_spec(c), scope) for c in columns)
        return ExactKeys(scope.table, parts), []
    return TokenRange(), restricted


def check_key_slices(where: Where, scope: Scope) -> None:
    """Reject slices on the partition key."""
    for relation in where.filters:
        is_slice = relation.operator in SLICES
        if is_slice and scope.column(relation.column).kind is Kind.PARTITION_KEY:
            raise InvalidRequest(
                "Only EQ and IN relation are supported on the partition key "
                "(unless you use the token() function or ALLOW FILTERING)"
            )


def _rows(
    relations: Sequence[AnyRelation], single: dict[str, list[Relation]], scope: Scope
) -> tuple[ClusteringRestriction, list[Relation], str | None]:
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
        before = table.clustering[max(table.by_name[first].position - 1, 0)].name
        skipped = (
            f'PRIMARY KEY column "{first}" cannot be restricted as preceding column "{before}" is '
            "not restricted"
        )
    filters = [relation for each in rest.values() for relation in each]
    return clustering.single_columns(fitting, scope), filters, skipped


def _fitting(
    columns: Sequence[Column], restricted: dict[str, list[Relation]]
) -> dict[str, list[Relation]]:
    """Return the relations that follow clustering order: ``=`` or IN, then slices on one column."""
    fitting: dict[str, list[Relation]] = {}
    for column in columns:
        relations = restricted.get(column.name)
        if not relations or any(r.operator not in _FITTING or r.key for r in relations):
            break
        fitting[column.name] = relations
        if all(relation.operator in SLICES for relation in relations):
            break
    return fitting


def _check_clustering(column: Column) -> None:
    if column.kind is not Kind.CLUSTERING:
        raise InvalidRequest(
            "Multi-column relations can only be applied to clustering columns but was applied "
            f"to: {column.name}"
        )
