"""Reads result rows from stored partitions.

`PlainReader` is for queries of plain columns without filters, such as the queries of log readers.
It copies stored cells directly to result tuples. `DistinctReader` is for SELECT DISTINCT, and
`ViewReader` is for all other queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define, field, frozen

from cdc_reader.testing.embedded.query.elements import RowView, join
from cdc_reader.testing.embedded.query.filters import Test
from cdc_reader.testing.embedded.query.model import Execution
from cdc_reader.testing.embedded.query.selectors import Output
from cdc_reader.testing.embedded.schema.table import Column, Kind
from cdc_reader.testing.embedded.storage.cell import Cell, MultiCell
from cdc_reader.testing.embedded.storage.partition import Partition
from cdc_reader.testing.embedded.storage.position import Position
from cdc_reader.testing.embedded.storage.row import LiveRow, Row

Cells = tuple[bytes | None, ...]
Found = tuple[tuple[bytes, ...] | None, Cells]
"""A row's clustering key (None for a static row in a partition without rows) and its result."""
Intervals = Sequence[tuple[Position, Position]]


@define
class PlainReader:
    """Reads rows of plain columns."""

    columns: tuple[Column, ...]
    _key: list[tuple[int, int]] = field(init=False)
    _clustering: list[tuple[int, int]] = field(init=False)
    _atoms: list[tuple[int, str]] = field(init=False)
    _collections: list[tuple[int, Column]] = field(init=False)
    _statics: list[tuple[int, Column]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        places = list(enumerate(self.columns))
        self._key = [(i, c.position) for i, c in places if c.kind is Kind.PARTITION_KEY]
        self._clustering = [(i, c.position) for i, c in places if c.kind is Kind.CLUSTERING]
        self._statics = [(i, c) for i, c in places if c.kind is Kind.STATIC]
        regulars = [(i, c) for i, c in places if c.kind is Kind.REGULAR]
        self._atoms = [(i, c.name) for i, c in regulars if not c.is_multi_cell]
        self._collections = [(i, c) for i, c in regulars if c.is_multi_cell]

    def rows(
        self, partition: Partition, intervals: Intervals, execution: Execution, reverse: bool
    ) -> Iterator[Found]:
        now = execution.now
        template = self._template(partition, partition.live_static(now))
        rows, has_ranges = partition.rows, len(partition.ranges) > 0
        for lower, upper in intervals:
            for place in rows.irange(lower, upper, reverse=reverse):
                row = rows[place]
                floor = partition.deletion_at(place) if has_ranges else partition.deletion
                cells = self._read(row, floor, now, template.copy())
                if cells is not None:
                    yield row.key, cells

    def static_row(self, partition: Partition, execution: Execution) -> Cells | None:
        static = partition.live_static(execution.now)
        return tuple(self._template(partition, static)) if static else None

    def _template(self, partition: Partition, static: LiveRow) -> list[bytes | None]:
        """Return the cells that all rows of the partition share."""
        template: list[bytes | None] = [None] * len(self.columns)
        for index, position in self._key:
            template[index] = partition.key[position]
        for index, column in self._statics:
            live = static.cells.get(column.name)
            if live is not None:
                template[index] = live.value if isinstance(live, Cell) else join(column.type, live)
        return template

    def _read(
        self, row: Row, floor: int | None, now: int, cells: list[bytes | None]
    ) -> Cells | None:
        """Return the row at `now` (seconds); None if it is dead.

        `floor` is the time of the last deletion of the partition, or of a range that contains the
        row.
        """
        if row.deletion is not None and (floor is None or row.deletion > floor):
            floor = row.deletion
        stored, is_live = row.cells, False
        for index, name in self._atoms:
            cell = stored.get(name)
            if (
                isinstance(cell, Cell)
                and cell.value is not None
                and (not cell.ttl or now < cell.expiry)
                and (floor is None or cell.timestamp > floor)
            ):
                cells[index] = cell.value
                is_live = True
        for index, column in self._collections:
            collection = stored.get(column.name)
            if isinstance(collection, MultiCell) and (live := collection.live(floor, now)):
                cells[index] = join(column.type, live)
                is_live = True
        if not is_live and not row.live(floor, now):
            return None
        for index, position in self._clustering:
            cells[index] = row.key[position]
        return tuple(cells)


@frozen
class ViewReader:
    """Reads the rows that pass the tests; `outputs` compute the result columns."""

    outputs: tuple[Output, ...]
    tests: tuple[Test, ...] = ()

    def rows(
        self, partition: Partition, intervals: Intervals, execution: Execution, reverse: bool
    ) -> Iterator[Found]:
        now = execution.now
        static = partition.live_static(now)
        for lower, upper in intervals:
            for row in partition.live_rows(now, lower, upper, reverse):
                view = RowView(partition.key, static, row, now)
                if all(test(view, execution) for test in self.tests):
                    yield row.key, self._compute(view, execution)

    def static_row(self, partition: Partition, execution: Execution) -> Cells | None:
        now = execution.now
        static = partition.live_static(now)
        view = RowView(partition.key, static, None, now)
        if not static or not all(test(view, execution) for test in self.tests):
            return None
        return self._compute(view, execution)

    def _compute(self, view: RowView, execution: Execution) -> Cells:
        return tuple(output.compute(view, execution) for output in self.outputs)


@frozen
class DistinctReader:
    """Reads one row per non-empty partition: partition key and static columns."""

    inner: ViewReader

    def rows(
        self, partition: Partition, intervals: Intervals, execution: Execution, _reverse: bool
    ) -> Iterator[Found]:
        static = partition.live_static(execution.now)
        has_rows = any(
            True
            for lower, upper in intervals
            for _ in partition.live_rows(execution.now, lower, upper)
        )
        view = RowView(partition.key, static, None, execution.now)
        if (has_rows or static) and all(test(view, execution) for test in self.inner.tests):
            yield None, tuple(output.compute(view, execution) for output in self.inner.outputs)

    def static_row(self, partition: Partition, execution: Execution) -> Cells | None:
        """Return None, because `rows` includes the static row."""
        del partition, execution
        return None


Reader = PlainReader | ViewReader | DistinctReader
"""Reads one partition: its rows between positions, or its static row if it has no rows."""
