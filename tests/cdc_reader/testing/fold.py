"""Applies a CDC log to an empty table, which reproduces the table that was logged.

Tests compare the result with the table. The merge rules are those of storage (last write wins) and
do not depend on how the log is written, so a comparison tests both the log and the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import define, field

from cdc_reader.cql.schema import (
    BATCH_SEQ_NO,
    DELETED_PREFIX,
    OPERATION,
    REMOVED_PREFIX,
    TIME,
    Operation,
)
from cdc_reader.cql.timeuuid import micros
from cdc_reader.cql.types import ListType, SetType, UserType
from cdc_reader.testing.embedded.cdc.collection import element_order, encode
from cdc_reader.testing.embedded.codec.order import join_cells, read_fields
from cdc_reader.testing.embedded.schema.table import Column, Table
from cdc_reader.testing.embedded.storage.cell import Cell
from cdc_reader.testing.embedded.storage.partition import Partition
from cdc_reader.testing.embedded.storage.position import AFTER, BEFORE, Bound
from cdc_reader.testing.embedded.storage.ranges import RangeTombstone
from cdc_reader.testing.embedded.storage.row import LiveRow, LiveValue, Row

LogRow = Mapping[str, bytes | None]
"""Serialized cells of a log row, by column. A null cell is None."""

_STARTS = {
    Operation.RANGE_START_INCLUSIVE: BEFORE,
    Operation.RANGE_START_EXCLUSIVE: AFTER,
}
_ENDS = {Operation.RANGE_END_INCLUSIVE: AFTER, Operation.RANGE_END_EXCLUSIVE: BEFORE}


@define
class Fold:
    """A table rebuilt from its log. TTLs are ignored, so cells do not expire.

    `partitions` contains the result, by serialized partition key.
    """

    base: Table
    partitions: dict[tuple[bytes, ...], Partition] = field(factory=dict)
    _range_start: Bound | None = None

    def apply(self, rows: Iterable[LogRow]) -> Fold:
        """Apply log rows except images. The rows of each stream must be in log order."""
        for row in rows:
            self._apply(row)
        return self

    def _apply(self, row: LogRow) -> None:
        operation = Operation(int.from_bytes(row[OPERATION] or b"", "big", signed=True))
        key = tuple(row[column.name] or b"" for column in self.base.partition_key)
        change = Partition(self.base, key)
        timestamp = micros(row[TIME] or b"")
        match operation:
            case Operation.INSERT | Operation.UPDATE:
                self._write(change, row, timestamp, operation is Operation.INSERT)
            case Operation.ROW_DELETE:
                change.row(self._prefix(row)).delete(timestamp)
            case Operation.PARTITION_DELETE:
                change.delete(timestamp)
            case _ if operation in _STARTS:
                self._range_start = Bound(self._prefix(row), _STARTS[operation])
            case _ if operation in _ENDS:
                end = Bound(self._prefix(row), _ENDS[operation])
                change.delete_range(RangeTombstone(self._start(row), end, timestamp))
            case _:
                return
        self.partitions.setdefault(key, Partition(self.base, key)).merge(change)

    def _start(self, row: LogRow) -> Bound:
        if self._range_start is None:
            raise ValueError(f"range end without a start before it: {row[BATCH_SEQ_NO]!r}")
        return self._range_start

    def _prefix(self, row: LogRow) -> tuple[bytes, ...]:
        cells = (row[column.name] for column in self.base.clustering)
        return tuple(cell for cell in cells if cell is not None)

    def _write(self, change: Partition, row: LogRow, timestamp: int, is_insert: bool) -> None:
        prefix = self._prefix(row)
        is_static = len(prefix) < len(self.base.clustering)
        target = change.static if is_static else change.row(prefix)
        if is_insert:
            target.set_marker(Cell(timestamp, b""))
        for column in self.base.statics if is_static else self.base.regulars:
            if column.is_multi_cell:
                _write_collection(target, column, row, timestamp)
            else:
                _write_atomic(target, column, row, timestamp)


def elements(column: Column, value: bytes) -> dict[bytes, bytes]:
    """Return the elements in a multi-cell column's logged value, without null UDT fields."""
    if isinstance(column.type, UserType):
        cells = read_fields(value)
        return {i.to_bytes(2, "big"): cell for i, cell in enumerate(cells) if cell is not None}
    cells = read_fields(value[4:])
    if isinstance(column.type, SetType):
        return {cell or b"": b"" for cell in cells}
    return {key or b"": cell or b"" for key, cell in zip(cells[::2], cells[1::2], strict=True)}


def select_all(partition: Partition, now: int) -> list[list[bytes | None]]:
    """Return the rows that ``SELECT *`` returns for the partition at `now` (seconds).

    A partition with only static cells is one row with null clustering columns.
    """
    static = partition.live_static(now)
    rows = list(partition.live_rows(now))
    if not rows and static.cells:
        rows = [LiveRow((), None, {})]
    return [_select(partition, static, row) for row in rows]


def _select(partition: Partition, static: LiveRow, row: LiveRow) -> list[bytes | None]:
    table = partition.table
    clustering: list[bytes | None] = list(row.key) or [None] * len(table.clustering)
    return [
        *partition.key,
        *clustering,
        *(_value(column, static.cells.get(column.name)) for column in table.statics),
        *(_value(column, row.cells.get(column.name)) for column in table.regulars),
    ]


def _value(column: Column, live: LiveValue | None) -> bytes | None:
    if live is None:
        return None
    if isinstance(live, Cell):
        return live.value
    values = {key: cell.value or b"" for key, cell in live.items()}
    if isinstance(column.type, ListType):
        ordered = [values[key] for key in sorted(values, key=element_order(column.type))]
        return len(ordered).to_bytes(4, "big") + join_cells(list[bytes | None](ordered))
    return encode(column.type, values)


def _write_atomic(target: Row, column: Column, row: LogRow, timestamp: int) -> None:
    value = row[column.name]
    if value is not None or row[DELETED_PREFIX + column.name]:
        target.set_cell(column.name, Cell(timestamp, value))


def _write_collection(target: Row, column: Column, row: LogRow, timestamp: int) -> None:
    added, removed = row[column.name], row[REMOVED_PREFIX + column.name]
    if row[DELETED_PREFIX + column.name]:
        # A collection's tombstone is 1 µs older than the elements with which it is logged.
        target.multi_cell(column.name).deletion = timestamp - 1
    if added:
        for key, value in elements(column, added).items():
            target.multi_cell(column.name).cells[key] = Cell(timestamp, value)
    if removed:
        for element in read_fields(removed[4:]):
            target.multi_cell(column.name).cells[element or b""] = Cell(timestamp, None)
