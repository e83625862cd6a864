"""The rows that events touch, by number: what a fold and a history have in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import reduce
from operator import and_, or_

import numpy as np

from cdc_reader._arrow import Mask, to_arrow, valid
from cdc_reader.changes.arrays import NONE, Indices, any_of_each, first_of_each
from cdc_reader.changes.folding.events import (
    OF_RANGE,
    OF_ROW,
    WRITE,
    Events,
    groups_of,
    has_static_rows,
)
from cdc_reader.changes.folding.keys import keys_of, ranges_of
from cdc_reader.cql.order import ClusteringOrder, KeyRange, Place
from cdc_reader.cql.schema import ColumnKind, TableSchema
from cdc_reader.errors import SchemaError

INCOMPLETE = (
    "found a change with a null in its primary key: a key column was renamed after the change was "
    "logged, or contains an empty value: start after the rename, with a new snapshot"
)
"""What is said of a change without a whole key."""


class TouchedRows:
    """The rows that events touch. A row's number is that of its group of events.

    In a table with static columns, the static columns of a partition are a row too, whose
    clustering key is null. Raises SchemaError for an event without a whole key.
    """

    def __init__(self, table: TableSchema, events: Events) -> None:
        self._table, self._events = table, events
        self._has_static_rows = has_static_rows(table, events.cells)
        count = len(events.kind)
        self._of_partition = groups_of(events.columns(table.partition_key), count)
        self._of_row = groups_of(events.columns(table.clustering), count, self._of_partition)
        self._count, self._partitions = (
            int(it.max(initial=NONE)) + 1 for it in (self._of_row, self._of_partition)
        )
        self._first = first_of_each(self._of_row, np.ones(count, bool), self._count)
        self._partition = self._of_partition[self._first]
        self._is_static = np.zeros(self._count, bool)
        if table.clustering:
            self._is_static = ~valid(events.column(table.clustering[0].name))[self._first]
        self._check_keys()

    def _own_statics(self) -> Indices:
        """Return, for each row, the row with the static columns of its partition, or NONE."""
        found = np.full(self._partitions, NONE, np.int64)
        found[self._partition[self._is_static]] = np.flatnonzero(self._is_static)
        own: Indices = found[self._partition]
        return own

    def _any(self, wanted: Mask) -> Mask:
        return any_of_each(self._of_row, wanted, self._count)

    def _range_deletes(self) -> Iterator[tuple[int, Indices]]:
        """Yield each delete of a range, and the rows that it covers."""
        events, clustering = self._events, self._table.clustering
        deletes = np.flatnonzero(events.kind == OF_RANGE)
        if not len(deletes) or events.bounds is None:
            return
        order = ClusteringOrder(self._table)
        keys = self._sorted_keys(order, self._of_partition[deletes])
        ranges = ranges_of(clustering, events.bounds.take(to_arrow(deletes)))
        for event, bounds in zip(deletes.tolist(), ranges, strict=True):
            self._check_bounds(bounds)
            places, rows = keys.get(int(self._of_partition[event]), ([], []))
            yield event, np.array(rows[order.section(places, bounds)], np.int64)

    def _sorted_keys(
        self, order: ClusteringOrder, partitions: Indices
    ) -> dict[int, tuple[list[Place], list[int]]]:
        """Return, for each of the partitions, the places of its rows in order, and the rows."""
        rows = np.flatnonzero(np.isin(self._partition, partitions) & ~self._is_static)
        keys = keys_of(self._table.clustering, self._events.cells, self._first[rows])
        found = defaultdict[int, list[tuple[Place, int]]](list)
        for row, partition, key in zip(
            rows.tolist(), self._partition[rows].tolist(), keys, strict=True
        ):
            found[partition].append((order.place(key), row))
        ordered = {partition: sorted(each) for partition, each in found.items()}
        return {
            partition: ([place for place, _ in each], [row for _, row in each])
            for partition, each in ordered.items()
        }

    def _check_keys(self) -> None:
        """Raise SchemaError for an event without a whole key.

        The key of a column that was renamed is null in older rows of the log, so that a delete of a
        row looks like one of a partition, and a write like one of static columns.
        """
        events, table = self._events, self._table
        lacks = reduce(or_, (~valid(cells) for cells in events.columns(table.partition_key)))
        if table.clustering:
            nulls = [~valid(cells) for cells in events.columns(table.clustering)]
            regular = [it.kind is not ColumnKind.STATIC for it in events.values]
            is_of_row = events.sets[:, np.array(regular, bool)].any(axis=1)
            is_of_row = (events.kind == OF_ROW) | ((events.kind == WRITE) & is_of_row)
            lacks |= reduce(or_, nulls) & (is_of_row | ~reduce(and_, nulls))
        if lacks.any():
            raise SchemaError(f"{table.name}: {INCOMPLETE}")

    def _check_bounds(self, bounds: KeyRange) -> None:
        """Raise SchemaError for a range that lacks the value of a leading column.

        An open end has no values, and is inclusive.
        """
        for bound, inclusive in (
            (bounds.start, bounds.start_inclusive),
            (bounds.end, bounds.end_inclusive),
        ):
            leading = [column.name for column in self._table.clustering[: len(bound)]]
            if [*bound] != leading or not (bound or inclusive):
                raise SchemaError(f"{self._table.name}: {INCOMPLETE}")
