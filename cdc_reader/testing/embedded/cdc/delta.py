"""Delta rows: the log rows that describe a change."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from cdc_reader.cql.schema import DELETED_PREFIX, REMOVED_PREFIX, Operation
from cdc_reader.testing.embedded.cdc.change import (
    Change,
    PartitionDelete,
    RangeDelete,
    RowDelete,
    RowKey,
    RowWrite,
)
from cdc_reader.testing.embedded.cdc.collection import encode, encode_keys
from cdc_reader.testing.embedded.schema.table import Table
from cdc_reader.testing.embedded.storage.cell import MultiCell
from cdc_reader.testing.embedded.storage.position import AFTER, BEFORE
from cdc_reader.testing.embedded.storage.ranges import RangeTombstone

TRUE = b"\x01"


@frozen
class LogRow:
    """One log row of a record: its operation, clustering values, and other cells."""

    operation: Operation
    key: RowKey
    cells: dict[str, bytes]
    ttl: int = 0


def delta_rows(table: Table, change: Change, with_values: bool) -> Iterator[LogRow]:
    """Yield the log rows of a change.

    If `with_values` is False (``delta: 'keys'``), the rows contain only keys.
    """
    match change:
        case RowWrite():
            operation = Operation.INSERT if change.marker is not None else Operation.UPDATE
            cells = _cells(table, change) if with_values else {}
            yield LogRow(operation, change.key, cells, change.ttl)
        case RowDelete(key):
            yield LogRow(Operation.ROW_DELETE, key, {})
        case RangeDelete(tombstone):
            yield from _range(tombstone)
        case PartitionDelete():
            yield LogRow(Operation.PARTITION_DELETE, None, {})


def _range(tombstone: RangeTombstone) -> Iterator[LogRow]:
    start, end = tombstone.start, tombstone.end
    yield LogRow(
        Operation.RANGE_START_INCLUSIVE
        if start.place == BEFORE
        else Operation.RANGE_START_EXCLUSIVE,
        start.prefix,
        {},
    )
    yield LogRow(
        Operation.RANGE_END_INCLUSIVE if end.place == AFTER else Operation.RANGE_END_EXCLUSIVE,
        end.prefix,
        {},
    )


def _cells(table: Table, write: RowWrite) -> dict[str, bytes]:
    cells: dict[str, bytes] = {}
    for name, value in write.cells.items():
        if isinstance(value, MultiCell):
            _collection(cells, table, name, value)
        elif value.value is None:
            cells[DELETED_PREFIX + name] = TRUE
        else:
            cells[name] = value.value
    return cells


def _collection(cells: dict[str, bytes], table: Table, name: str, value: MultiCell) -> None:
    column = table.by_name[name]
    live = {key: cell.value for key, cell in value.cells.items() if cell.value is not None}
    dead = [key for key, cell in value.cells.items() if cell.value is None]
    if value.deletion is not None:
        cells[DELETED_PREFIX + name] = TRUE
    if dead:
        cells[REMOVED_PREFIX + name] = encode_keys(column.type, dead)
    if live or column.is_user_type:
        cells[name] = encode(column.type, live)
