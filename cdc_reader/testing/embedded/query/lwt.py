"""Lightweight transactions: checks their conditions, and returns their results."""

from __future__ import annotations

from collections.abc import Container, Sequence

from attrs import evolve, frozen

from cdc_reader.cql.types import Native
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.query.clustering import ClusteringKey
from cdc_reader.testing.embedded.query.elements import RowView
from cdc_reader.testing.embedded.query.model import Execution
from cdc_reader.testing.embedded.query.modification import Modification
from cdc_reader.testing.embedded.query.result import ColumnSpec, Rows
from cdc_reader.testing.embedded.schema.table import Column, Table
from cdc_reader.testing.embedded.storage.partition import Partition
from cdc_reader.testing.embedded.storage.row import LiveRow

Step = tuple[Modification, Execution]
APPLIED = "[applied]"


@frozen
class Outcome:
    """Whether the statements apply, and the result rows, one for each statement."""

    applies: bool
    rows: Rows


def check(steps: Sequence[Step], is_batch: bool) -> Outcome:
    """Check the conditions of all statements, which must apply to the same partition."""
    table = steps[0][0].table
    partition = _the_partition(steps)
    views = [_view(partition, modification, each) for modification, each in steps]
    applies = all(
        modification.conditions is None
        or modification.conditions.hold(
            view, bool(view.row if modification.rows.names_rows else view.static), each
        )
        for (modification, each), view in zip(steps, views, strict=True)
    )
    columns = result_columns([modification for modification, _ in steps], is_batch)
    shown = [
        (None,) * len(columns) if view is None else tuple(map(view.value, columns))
        for view in _old_rows(steps, views, partition)
    ]
    rows = [(bytes([applies]), *cells) for cells in shown]
    return Outcome(applies, Rows(specs(table, columns), rows))


def _old_rows(
    steps: Sequence[Step], views: Sequence[RowView], partition: Partition
) -> list[RowView | None]:
    """Return what the result shows of each statement's row; None if it shows nulls alone.

    ScyllaDB reads the rows that conditions test, or, if these test the static row alone, the first
    row of the partition. In place of a row that it has not found, it shows the static row, except
    for IF EXISTS and IF NOT EXISTS.
    """
    tested = [
        view.row for (each, _), view in zip(steps, views, strict=True) if each.tests_rows
    ] or [next(partition.live_rows(steps[0][1].now), None)]
    found = {row.key for row in tested if row is not None}
    shows_static = bool(partition.table.statics) and bool(found or views[0].static)
    return [
        _old_row(modification, view, found, shows_static)
        for (modification, _), view in zip(steps, views, strict=True)
    ]


def _old_row(
    modification: Modification, view: RowView, found: Container[ClusteringKey], shows_static: bool
) -> RowView | None:
    if view.row is not None and view.row.key in found:
        return view
    if shows_static and not (modification.tests_rows and modification.tests_existence):
        return evolve(view, row=None)
    return None


def result_columns(modifications: Sequence[Modification], is_batch: bool) -> tuple[Column, ...]:
    """Return the table's columns that the result contains.

    These are the columns of the conditions (all columns for IF [NOT] EXISTS) and, for a batch, the
    key columns.
    """
    named = {
        column
        for modification in modifications
        if modification.conditions
        for column in modification.conditions.columns
    }
    return tuple(
        column
        for column in modifications[0].table.select_order
        if column in named or (is_batch and column.is_key)
    )


def specs(table: Table, columns: Sequence[Column]) -> tuple[ColumnSpec, ...]:
    """Return the result's columns: ``[applied]``, then `columns`."""
    applied = ColumnSpec(table.keyspace, table.name, APPLIED, Native("boolean"))
    return applied, *(ColumnSpec(table.keyspace, table.name, c.name, c.type) for c in columns)


def _the_partition(steps: Sequence[Step]) -> Partition:
    places = {
        (modification.table.id, key)
        for modification, execution in steps
        for key in modification.partition_keys(execution)
    }
    if not places:
        what = "BATCH" if len(steps) > 1 else "deletion" if steps[0][0].deletes else "update"
        raise InvalidRequest(f"Unrestricted partition key in a conditional {what}")
    if len({table_id for table_id, _ in places}) > 1:
        raise InvalidRequest("BATCH with conditions cannot span multiple tables")
    if len(places) > 1:
        raise InvalidRequest(
            "BATCH with conditions cannot span multiple partitions"
            if len(steps) > 1
            else "IN on the partition key is not supported with conditional updates"
        )
    modification, [(_, key)] = steps[0][0], places
    stored = modification.source.partition(modification.table, key)
    return stored or Partition(modification.table, key)


def _view(partition: Partition, modification: Modification, execution: Execution) -> RowView:
    keys = modification.clustering_keys(execution)
    if len(keys) > 1 and modification.conditions:
        raise InvalidRequest(
            "IN on the clustering key columns is not supported with conditional updates"
        )
    static = partition.live_static(execution.now)
    row: LiveRow | None = partition.live_row(keys[0], execution.now) if keys else None
    return RowView(partition.key, static, row or None, execution.now)
