"""Validates INSERT, UPDATE and DELETE against the schema, and plans them."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from cdc_reader.cql.types import Native
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.query.assignment import (
    assignment,
    check_assignments,
    deletion,
    overwrite,
    set_value,
)
from cdc_reader.testing.embedded.query.clustering import ClusteringRestriction
from cdc_reader.testing.embedded.query.filters import Conditions, conditions
from cdc_reader.testing.embedded.query.json_row import JsonRow
from cdc_reader.testing.embedded.query.keys import ExactKeys
from cdc_reader.testing.embedded.query.model import UNSET, Scope
from cdc_reader.testing.embedded.query.modification import Modification
from cdc_reader.testing.embedded.query.ports import TableSource
from cdc_reader.testing.embedded.query.result import ColumnSpec
from cdc_reader.testing.embedded.query.terms import compile_optional, compile_term, one, timeout
from cdc_reader.testing.embedded.query.where import (
    Where,
    analyse,
    bound_key,
    check_key_slices,
    partition_key_markers,
)
from cdc_reader.testing.embedded.schema.table import Column, Kind, Table


def plan_modification(
    statement: ast.Modification, scope: Scope, source: TableSource
) -> Modification:
    """Validate a statement and plan it."""
    _check_using(statement, scope.table)
    using = statement.using
    return evolve(
        _planned(statement, scope, source),
        ttl=compile_optional(using.ttl, "[ttl]", "int", scope),
        timestamp=compile_optional(using.timestamp, "[timestamp]", "bigint", scope),
        timeout=timeout(using.timeout, scope) if using.timeout else None,
        expiry_first=scope.catalog.profile.expiry_before_value,
    )


def _planned(statement: ast.Modification, scope: Scope, source: TableSource) -> Modification:
    match statement:
        case ast.Insert():
            return _plan_insert(statement, scope, source)
        case ast.InsertJson():
            return _plan_insert_json(statement, scope, source)
        case ast.Update():
            return _plan_update(statement, scope, source)
        case ast.Delete():
            return _plan_delete(statement, scope, source)


def _check_using(statement: ast.Modification, table: Table) -> None:
    using, is_conditional = statement.using, _is_conditional(statement)
    if is_conditional and table.is_counter:
        raise InvalidRequest("Conditional updates are not supported on counter tables")
    if is_conditional and using.timestamp is not None:
        raise InvalidRequest("Cannot provide custom timestamp for conditional updates")
    if table.is_counter and isinstance(statement, ast.Insert | ast.InsertJson):
        raise InvalidRequest(
            "INSERT statement are not allowed on counter tables, use UPDATE instead"
        )
    for term, what in ((using.timestamp, "timestamp"), (using.ttl, "TTL")):
        if table.is_counter and term is not None:
            raise InvalidRequest(f"Cannot provide custom {what} for counter updates")


def _is_conditional(statement: ast.Modification) -> bool:
    if isinstance(statement, ast.Insert | ast.InsertJson):
        return statement.if_not_exists
    return statement.if_exists or bool(statement.conditions)


def _plan_insert(insert: ast.Insert, scope: Scope, source: TableSource) -> Modification:
    if len(insert.columns) != len(insert.values):
        raise InvalidRequest("Unmatched column names/values")
    values = dict(zip(insert.columns, insert.values, strict=True))
    for name in insert.columns:
        if insert.columns.count(name) > 1:
            raise InvalidRequest(f"Multiple definitions found for column {name}")
    columns = [scope.column(name, "Unknown identifier {}") for name in insert.columns]
    others = [column for column in columns if not column.is_key]
    table = scope.table
    is_static = _touches_statics_alone(others) and not any(
        c.kind is Kind.CLUSTERING for c in columns
    )
    wanted = table.partition_key if is_static else (*table.partition_key, *table.clustering)
    for column in wanted:
        if column.name not in values:
            raise InvalidRequest(f"Missing mandatory PRIMARY KEY part {column.name}")
    keys = {
        column.name: one(values[column.name], scope.column_spec(column), scope) for column in wanted
    }
    prefix = () if is_static else tuple(keys[c.name] for c in table.clustering)
    operations = [(column, set_value(column, values[column.name], scope)) for column in others]
    return Modification(
        table,
        source,
        ExactKeys(table, tuple(keys[c.name] for c in table.partition_key)),
        ClusteringRestriction(table, prefix, width=len(prefix)),
        tuple(operations),
        inserts=not is_static,
        conditions=conditions((), scope, exists=False if insert.if_not_exists else None),
        partition_key_indexes=bound_key(values, scope),
    )


def _plan_insert_json(insert: ast.InsertJson, scope: Scope, source: TableSource) -> Modification:
    """Plan INSERT JSON, which writes all regular columns but no static ones, as in ScyllaDB."""
    table = scope.table
    text = compile_term(insert.text, ColumnSpec("", "", "", Native("text")), scope)
    row = JsonRow(table, text, UNSET if insert.default_unset else None)
    prefix = tuple(row.key(column) for column in table.clustering)
    return Modification(
        table,
        source,
        ExactKeys(table, tuple(row.key(column) for column in table.partition_key)),
        ClusteringRestriction(table, prefix, width=len(prefix)),
        tuple(
            (column, overwrite(column, row.value(column)))
            for column in table.columns
            if column.kind is Kind.REGULAR
        ),
        inserts=True,
        conditions=conditions((), scope, exists=False if insert.if_not_exists else None),
    )


def _plan_update(update: ast.Update, scope: Scope, source: TableSource) -> Modification:
    check_assignments(update.assignments)
    operations = [
        (scope.column(each.column, "Unknown identifier {}"), assignment(each, scope))
        for each in update.assignments
    ]
    where = _where(update.where, scope)
    when = conditions(update.conditions, scope, True if update.if_exists else None)
    _check_rows(where, [column for column, _ in operations], when, "UPDATE")
    return Modification(
        scope.table,
        source,
        _exact(where, scope),
        where.clustering,
        tuple(operations),
        conditions=when,
        partition_key_indexes=partition_key_markers(update.where, scope),
    )


def _plan_delete(delete: ast.Delete, scope: Scope, source: TableSource) -> Modification:
    operations = [
        (scope.column(each.column, "Unknown identifier {}"), deletion(each, scope))
        for each in delete.deletions
    ]
    where = _where(delete.where, scope)
    when = conditions(delete.conditions, scope, True if delete.if_exists else None)
    if operations:
        _check_rows(where, [column for column, _ in operations], when, "DELETE")
    elif when is not None and not where.clustering.names_rows:
        raise InvalidRequest(
            "DELETE statements must restrict all PRIMARY KEY columns with equality relations in "
            "order to delete non static columns"
        )
    return Modification(
        scope.table,
        source,
        _exact(where, scope),
        where.clustering,
        tuple(operations),
        deletes=not operations,
        conditions=when,
        partition_key_indexes=partition_key_markers(delete.where, scope),
    )


def _where(relations: Sequence[ast.AnyRelation], scope: Scope) -> Where:
    where = analyse(relations, scope)
    check_key_slices(where, scope)
    others = [r.column for r in where.filters if not scope.table.by_name[r.column].is_key]
    if others:
        raise InvalidRequest(f"Non PRIMARY KEY columns found in where clause: {', '.join(others)} ")
    _exact(where, scope)
    if where.skipped:
        raise InvalidRequest(where.skipped)
    return where


def _exact(where: Where, scope: Scope) -> ExactKeys:
    if isinstance(where.keys, ExactKeys):
        return where.keys
    given = {relation.column for relation in where.filters}
    missing = [c.name for c in scope.table.partition_key if c.name not in given]
    if missing:
        raise InvalidRequest(f"Missing mandatory PRIMARY KEY part {missing[0]}")
    raise InvalidRequest("Invalid operator in where clause: the partition key takes = and IN")


def _check_rows(where: Where, columns: list[Column], when: Conditions | None, verb: str) -> None:
    """Check that writes to regular columns specify rows, and writes to static columns do not."""
    clustering = where.clustering
    names_regular = when is not None and (
        when.names_regular or (when.exists is not None and not clustering.is_open)
    )
    if _touches_statics_alone(columns) and not names_regular:
        if not clustering.is_open:
            raise InvalidRequest(
                f"Invalid restrictions on clustering columns since the {verb} statement modifies "
                "only static columns"
            )
    elif not clustering.names_rows:
        missing = clustering.table.clustering[clustering.width]
        raise InvalidRequest(f"Missing mandatory PRIMARY KEY part {missing.name}")


def _touches_statics_alone(columns: Sequence[Column]) -> bool:
    return bool(columns) and all(column.kind is Kind.STATIC for column in columns)
