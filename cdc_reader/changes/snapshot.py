"""Converts rows of a snapshot to changes: each table row becomes a row in the log's format."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader._time import Micros
from cdc_reader.changes.change import Change
from cdc_reader.changes.columns import LogPage, layout_of
from cdc_reader.changes.frames.table_rows import TableRows
from cdc_reader.changes.page import ChangePage
from cdc_reader.changes.records import ChangeRows
from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import (
    BATCH_SEQ_NO,
    DELETED_PREFIX,
    OPERATION,
    STREAM_ID,
    TIME,
    LogSchema,
    Operation,
)
from cdc_reader.cql.types import ListType, is_multi_cell
from cdc_reader.decoding import Entries, arrow_type
from cdc_reader.reading.snapshot import RangeComplete, SnapshotDelivery

_NO_STREAM = bytes(16)


class SnapshotChanges:
    """Turns the deliveries of one snapshot into changes."""

    def __init__(self) -> None:
        self._rows: dict[int, TableRows] = {}

    def each(self, delivery: SnapshotDelivery) -> Iterator[Entries[Change]]:
        """Yield the changes of a delivery; a partition's static row comes before its other rows."""
        if isinstance(delivery, RangeComplete):
            self._rows.pop(delivery.reading, None)
            return
        schema = delivery.schema
        rows = self._rows.setdefault(delivery.reading, TableRows(schema.base))
        for batch, _ in rows.feed(delivery.batch):
            yield snapshot_changes(schema, batch, delivery.position)


def snapshot_changes(schema: LogSchema, rows: pa.RecordBatch, position: Micros) -> Entries[Change]:
    """Return a change for each of the given rows, with `position` (µs) as its timestamp."""
    page = LogPage(layout_of(schema), _logged(schema, rows, position))
    changes = ChangeRows.of_snapshot(page.count)
    return Entries(Change, ChangePage(page, changes), changes.count)


def _logged(schema: LogSchema, rows: pa.RecordBatch, position: Micros) -> pa.RecordBatch:
    """Return the rows in the log's format; each sets every column and has operation `SNAPSHOT`."""
    count, types = rows.num_rows, {column.name: column.type for column in schema.columns}
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    for column in schema.base.columns:
        if is_multi_cell(column.type) and column.name in columns:
            cells = columns[column.name]
            columns[DELETED_PREFIX + column.name] = cells.is_valid()
            if isinstance(column.type, ListType):
                kind = arrow_type(types[column.name])
                columns[column.name] = _with_ids(cells, kind, position)
    columns[STREAM_ID] = pa.repeat(pa.scalar(_NO_STREAM, arrow_type(types[STREAM_ID])), count)
    columns[TIME] = pa.repeat(str(timeuuid.bound(position)), count)
    columns[BATCH_SEQ_NO] = pa.repeat(pa.scalar(0, pa.int32()), count)
    columns[OPERATION] = pa.repeat(pa.scalar(int(Operation.SNAPSHOT), pa.int16()), count)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _with_ids(lists: pa.ListArray, kind: pa.DataType, position: Micros) -> pa.MapArray:
    """Convert lists to the log's form: maps from element ids to elements.

    The ids are derived from `position`.
    """
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    places = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    ids = pa.array([_element_id(position, n) for n in range(max(lengths, default=0))], pa.string())
    keys = ids.take(pa.array(places))
    return pa.MapArray.from_arrays(
        pa.array(offsets), keys, lists.flatten(), type=kind, mask=lists.is_null()
    )


def _element_id(position: Micros, place: int) -> str:
    """Return the id of the list element at index `place`. Ids sort in the order of the indices."""
    return str(timeuuid.nth(position, place))
