"""Format ``changes``: changed rows of the base table, in the shape of Delta's change data feed.

Each row that comes out is one row of the log with its cells put right: a postimage becomes
an insert or an update, a preimage the row before it, a delete gets the preimage's cells. So
``cdc$batch_seq_no`` tells them apart within their record, and orders them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np
import pyarrow as pa
from attrs import frozen

from cdc_reader.schema import Column, ColumnKind, LogSchema, TableSchema
from cdc_reader.timeuuid import bound
from pyspark_scylla_cdc.commit_time import TIMESTAMP, commit_timestamps, commit_versions
from pyspark_scylla_cdc.formats import images, names
from pyspark_scylla_cdc.formats.arrays import NAMES, NONE, Indices, Mask, names_of, pick, valid
from pyspark_scylla_cdc.formats.asked import Asked, Preimages, RangeDelete
from pyspark_scylla_cdc.formats.columns import is_key, log_columns, with_own_columns
from pyspark_scylla_cdc.formats.images import gives_preimages
from pyspark_scylla_cdc.formats.net_changes import DELETE, INSERT, UPDATE, NetChanges, net_changes
from pyspark_scylla_cdc.formats.range_deletes import bounds, permitted, range_type
from pyspark_scylla_cdc.formats.records import TIME, whole_records
from pyspark_scylla_cdc.formats.row_changes import (
    SEQUENCE,
    RangeDeletes,
    clustering_of,
    read_changes,
)
from pyspark_scylla_cdc.formats.table_rows import table_rows
from pyspark_scylla_cdc.formats.value_types import ValueTypes

_TYPES = pa.array(
    ["insert", "update_postimage", "delete", "update_preimage", "delete_partition", "delete_range"]
)
"""By number; the first three are the kinds of net changes."""
_PREIMAGE, _DELETE_PARTITION, _DELETE_RANGE = 3, 4, 5


@frozen(eq=False)
class _Rows:
    """The rows to come out: where in the log each is, its type, whose cells it shows.

    `change` is the number of the net change, NONE for deletes of many rows; `end` the row of
    the log where a range ends.
    """

    at: Indices
    type: Indices
    change: Indices
    end: Indices

    @classmethod
    def all(cls, net: NetChanges, ranges: RangeDeletes, *, preimages: bool) -> _Rows:
        """In the order of the log."""
        changes = np.arange(len(net.kind))
        before = changes[(net.kind == UPDATE) & (net.before != NONE) & preimages]
        many = np.concatenate([ranges.partitions, ranges.starts])
        at = np.concatenate([net.at, net.before[before], many])
        counts = [len(before), len(ranges.partitions), len(ranges.starts)]
        kinds = np.repeat([_PREIMAGE, _DELETE_PARTITION, _DELETE_RANGE], counts)
        end = np.concatenate([np.full(len(at) - counts[2], NONE), ranges.ends])
        order = np.argsort(at, kind="stable")
        return cls(
            at=at[order],
            type=np.concatenate([net.kind, kinds])[order],
            change=np.concatenate([changes, before, np.full(len(many), NONE)])[order],
            end=end[order],
        )


class ChangesFormat:
    """Rows as before and after each change.

    Raises UnsupportedTableError if the table's images do not allow what is asked.
    """

    def __init__(self, schema: LogSchema, asked: Asked, types: ValueTypes) -> None:
        self._base = schema.base
        self._asked = asked
        self._values = [column for column in schema.base.columns if not is_key(column)]
        _check_images(schema.base, asked, self._values)
        self._by_name = {column.name: column for column in schema.base.columns}
        self._log = schema
        self.schema = _schema(schema.base, asked, types)

    def log_columns(self, wanted: Collection[str]) -> tuple[Column, ...]:
        """The columns of the log that the columns `wanted` are made of."""
        deltas = names.MODIFIED in wanted or names.NULLED in wanted
        values = {column.name for column in self._values if deltas or column.name in wanted}
        return log_columns(self._log, values, deltas=deltas)

    def convert(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """The changes in these rows of the log, with the columns of `schema`."""
        preimages = gives_preimages(self._base.cdc, self._asked)
        for batch in whole_records(batches):
            changes, ranges = read_changes(batch, self._base)
            allowed = permitted(batch, ranges, self._base, self._asked.range_deletes)
            net = net_changes(batch, changes, self._base)
            rows = _Rows.all(net, allowed, preimages=preimages)
            if len(rows.at):
                columns = [self._column(name, batch, net, rows) for name in schema.names]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def snapshot(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, position: int
    ) -> Iterator[pa.RecordBatch]:
        """Rows of the base table as inserts of `position`, in µs, with the columns of `schema`."""
        for rows, is_static in table_rows(batches, self._base):
            columns = [
                rows.column(name)
                if name in self._by_name
                else self._of_snapshot(name, rows, position, is_static=is_static)
                for name in schema.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _of_snapshot(
        self, name: str, rows: pa.RecordBatch, position: int, *, is_static: bool
    ) -> pa.Array:
        """All that is in a row counts as set by it."""
        count = rows.num_rows
        match name:
            case names.MODIFIED | names.NULLED:
                there = [(c.kind is ColumnKind.STATIC) == is_static for c in self._values]
                marks = np.tile(np.array(there, bool), (count, 1))
                if name == names.NULLED:
                    for place, column in enumerate(self._values):
                        marks[:, place] &= ~valid(rows.column(column.name))
                known = [column.name for column in self._values]
                return names_of(marks, known, np.ones(count, bool))
            case names.RANGE:
                return pa.nulls(count, self.schema.field(name).type)
            case _:
                return pa.repeat(_snapshot_cell(name, position), count)

    def _column(self, name: str, batch: pa.RecordBatch, net: NetChanges, rows: _Rows) -> pa.Array:
        column = self._by_name.get(name)
        if column is None:
            return self._meta(name, batch, net, rows)
        if is_key(column):
            return _key(column, batch, rows)
        return self._value(column, net, rows)

    def _value(self, column: Column, net: NetChanges, rows: _Rows) -> pa.Array:
        after = net.values_after(column, postimages=self._base.cdc.postimage)
        before = net.values_before(column)
        shows_before = (rows.type == _PREIMAGE) | (rows.type == DELETE)
        place = rows.change + len(after) * shows_before
        return pick(pa.concat_arrays([after, before]), np.where(rows.change == NONE, NONE, place))

    def _meta(self, name: str, batch: pa.RecordBatch, net: NetChanges, rows: _Rows) -> pa.Array:
        match name:
            case names.RANGE:
                starts = np.where(rows.end == NONE, NONE, rows.at)
                return bounds(batch, starts, rows.end, self.schema.field(name).type)
            case names.MODIFIED:
                return self._marked(net.modified, net, rows)
            case names.NULLED:
                return self._marked(net.set_to_null, net, rows)
            case names.INSERTED:
                inserted = pa.array(net.rows.has_insert[net.group])
                return pick(inserted, np.where(_is_upsert(rows), rows.change, NONE))
            case _:
                return _place(name, batch, rows)

    def _marked(self, test: Callable[[Column], Mask], net: NetChanges, rows: _Rows) -> pa.Array:
        """The names of the columns that pass the test, for inserts and updates."""
        marks = np.zeros((len(net.kind) + 1, len(self._values)), bool)  # the last: of no change
        for place, column in enumerate(self._values):
            marks[:-1, place] = test(column)
        shown = _is_upsert(rows)
        return names_of(marks[rows.change], [column.name for column in self._values], shown)


def _snapshot_cell(name: str, position: int) -> pa.Scalar:
    """What says of all rows of a snapshot which change they are, and when it was made."""
    match name:
        case names.CHANGE_TYPE:
            return _TYPES[INSERT]
        case names.COMMIT_TIMESTAMP:
            return pa.scalar(position, TIMESTAMP)
        case names.COMMIT_VERSION:
            return commit_versions(pa.array([str(bound(position))]))[0]
        case names.INSERTED:
            return pa.scalar(True)
        case _:
            return pa.scalar(0, pa.int32())


def _is_upsert(rows: _Rows) -> Mask:
    return np.isin(rows.type, (INSERT, UPDATE, _PREIMAGE))


def _place(name: str, batch: pa.RecordBatch, rows: _Rows) -> pa.Array:
    """What says which change it is, and when it was made."""
    match name:
        case names.CHANGE_TYPE:
            return _TYPES.take(pa.array(rows.type))
        case names.COMMIT_TIMESTAMP:
            return commit_timestamps(pick(batch.column(TIME), rows.at))
        case names.COMMIT_VERSION:
            return commit_versions(pick(batch.column(TIME), rows.at))
        case _:
            return pick(batch.column(SEQUENCE), rows.at)


def _key(column: Column, batch: pa.RecordBatch, rows: _Rows) -> pa.Array:
    """A delete of many rows has no clustering key: of ranges, the bounds show it."""
    has_none = (rows.change == NONE) & (column.kind is ColumnKind.CLUSTERING)
    return pick(batch.column(column.name), np.where(has_none, NONE, rows.at))


def _schema(base: TableSchema, asked: Asked, types: ValueTypes) -> pa.Schema:
    fields = [
        (names.CHANGE_TYPE, pa.string()),
        (names.COMMIT_TIMESTAMP, TIMESTAMP),
        (names.COMMIT_VERSION, pa.string()),
        (names.SEQUENCE, pa.int32()),
    ]
    if asked.include_delta:
        fields += [(names.MODIFIED, NAMES), (names.NULLED, NAMES), (names.INSERTED, pa.bool_())]
    if asked.range_deletes is RangeDelete.EMIT and clustering_of(base):
        fields.append((names.RANGE, range_type(base, types)))
    return with_own_columns(base, types.fields(base.columns), fields)


def _check_images(base: TableSchema, asked: Asked, values: list[Column]) -> None:
    if asked.preimages is Preimages.REQUIRE:
        images.require_full_preimages(base)
    if not asked.include_delta:
        images.require_postimages(
            base,
            "format 'changes' shows rows as they are after each change, and the log has no "
            "postimages",
            "; or give includeDelta 'true' for what each change set",
        )
        return
    images.require_deltas(base, "includeDelta tells what changed, and the log has keys only")
    if not base.cdc.postimage:
        images.require_readable_deltas(base, values)
