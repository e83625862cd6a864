"""Format ``changes``: changed rows of the base table, in the shape of Delta's change data feed.

Each output row corresponds to one row of the log. A postimage becomes an insert or an update, a
preimage becomes the row before the update, and a delete shows the preimage's values. Therefore
``cdc$batch_seq_no`` identifies and orders the output rows of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from attrs import frozen

from cdc_reader._arrow import Mask, valid
from cdc_reader._time import Micros
from cdc_reader.changes import lifetimes
from cdc_reader.changes.arrays import NAMES, NONE, Indices, at_rows, faulty, names_of, pick
from cdc_reader.changes.frames import columns as names
from cdc_reader.changes.frames import images
from cdc_reader.changes.frames.bad_records import (
    BadRecords,
    Origins,
    Part,
    bad_record_field,
    snapshot_parts,
)
from cdc_reader.changes.frames.change_format import ChangeFormat
from cdc_reader.changes.frames.columns import log_columns, with_own_columns
from cdc_reader.changes.frames.commit_time import TIMESTAMP, commit_timestamps, commit_versions
from cdc_reader.changes.frames.images import gives_preimages
from cdc_reader.changes.frames.net_changes import DELETE, INSERT, UPDATE, NetChanges, read_changes
from cdc_reader.changes.frames.range_deletes import RangeDeletes, bounds, range_type
from cdc_reader.changes.frames.table_rows import lifetimes_of_rows
from cdc_reader.changes.frames.value_types import ValueTypes
from cdc_reader.cql.schema import (
    BATCH_SEQ_NO,
    TIME,
    Column,
    ColumnKind,
    LogSchema,
    TableSchema,
)
from cdc_reader.cql.timeuuid import bound

_TYPES = (
    "insert",
    "update_postimage",
    "delete",
    "update_preimage",
    "delete_partition",
    "delete_range",
)
"""Change types by number; the first three are the kinds of net changes."""
_PREIMAGE, _DELETE_PARTITION, _DELETE_RANGE = 3, 4, 5
_MARKED = (names.COMMIT_TIMESTAMP, names.COMMIT_VERSION)


@frozen(eq=False)
class _Rows:
    """The output rows of a batch: for each one, its log row (`at`), its type and its net change.

    The net change is NONE for a delete of many rows. `end` is the log row at which the range of a
    range delete ends, and NONE for other output rows.
    """

    at: Indices
    type: Indices
    change: Indices
    end: Indices

    @classmethod
    def all(cls, net: NetChanges, ranges: RangeDeletes, *, preimages: bool) -> _Rows:
        """Return all output rows, in the order of the log."""
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
    """The format ``changes``: rows as they are before and after each change.

    Raises UnsupportedTableError if the table's log lacks the images that the options need.
    """

    def __init__(self, schema: LogSchema, wanted: ChangeFormat) -> None:
        self._base = schema.base
        self._wanted = wanted
        self._types = ValueTypes.parse(wanted.decimal_type, schema.base)
        self.is_tolerant = wanted.on_bad_record != "fail"
        self._values = schema.base.values
        _check_images(schema.base, wanted, self._values)
        self._by_name = {column.name: column for column in schema.base.columns}
        self._log = schema
        self.schema = _schema(schema.base, wanted, self._types)

    def log_columns(self, wanted: Collection[str]) -> tuple[Column, ...]:
        """Return the log columns that must be read to produce the columns `wanted`."""
        deltas = not {names.MODIFIED, names.NULLED, names.EXPIRES}.isdisjoint(wanted)
        values = {column.name for column in self._values if deltas or column.name in wanted}
        return log_columns(self._log, values, deltas=deltas, ttls=names.EXPIRES in wanted)

    def convert(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Convert rows of the log to changes, with the columns of `schema`."""
        wanted = self._wanted
        preimages = gives_preimages(self._base.cdc, wanted.preimages, partial=wanted.include_delta)
        typed = map(self._types.converter(self._log.columns), batches)

        def parts() -> Iterator[Part]:
            for net, ranges in read_changes(typed, self._base, wanted):
                rows = _Rows.all(net, ranges, preimages=preimages)
                origins = Origins(net.batch, rows.at, net.rows.changes, self._are_bad(net, rows))
                yield origins, partial(self._column, net=net, rows=rows)

        return BadRecords(wanted.on_bad_record, self._base, schema).rows(parts())

    def snapshot(
        self, rows: Iterable[tuple[pa.RecordBatch, bool]], schema: pa.Schema, position: Micros
    ) -> Iterator[pa.RecordBatch]:
        """Convert rows of the base table to inserts with the write time `position` (µs).

        `schema` contains the columns of the result.
        """
        typed = self._types.converter(self._base.columns)
        found = ((typed(batch), is_static) for batch, is_static in rows)
        parts = snapshot_parts(found, partial(self._of_snapshot, position=position))
        return BadRecords(self._wanted.on_bad_record, self._base, schema).rows(parts)

    def deletes(
        self, keys: pa.RecordBatch, schema: pa.Schema, times: Sequence[Micros]
    ) -> pa.RecordBatch:
        """Return deletes of rows or of partitions, at these write times (µs).

        `keys` have the columns of the primary key, or those of the partition key, in the format's
        types. `schema` contains the columns of the result.
        """
        names_of_key = {column.name for column in self._base.columns if column.is_key}
        kind = DELETE if names_of_key == {*keys.schema.names} else _DELETE_PARTITION
        versions = commit_versions(pa.array([str(bound(time)) for time in times], pa.string()))
        cells = {
            **dict(zip(keys.schema.names, keys.columns, strict=True)),
            names.CHANGE_TYPE: pa.repeat(_TYPES[kind], len(keys)),
            names.COMMIT_TIMESTAMP: pa.array(times, TIMESTAMP),
            names.COMMIT_VERSION: versions,
            names.SEQUENCE: pa.repeat(pa.scalar(0, pa.int32()), len(keys)),
        }
        columns = [
            cells[field.name] if field.name in cells else pa.nulls(len(keys), field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def mark(self, kind: str, schema: pa.Schema, position: Micros) -> pa.RecordBatch:
        """Return the row that announces the beginning or the end of a snapshot.

        `kind` is `SNAPSHOT_BEGIN` or `SNAPSHOT_COMPLETE`; the row sorts before or after the
        snapshot's rows. `schema` contains the columns of the result, and `position` (µs) is the
        write time of the row.
        """
        cells = {name: _snapshot_cell(name, position).as_py() for name in _MARKED}
        cells[names.CHANGE_TYPE] = kind
        cells[names.SEQUENCE] = -1 if kind == names.SNAPSHOT_BEGIN else 1
        columns = [pa.array([cells.get(field.name)], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _of_snapshot(
        self, name: str, rows: pa.RecordBatch, position: Micros, *, is_static: bool
    ) -> pa.Array:
        """Return a column of a snapshot, whose rows count as inserts that set every column."""
        count = rows.num_rows
        match name:
            case _ if name in self._by_name:
                return rows.column(name)
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
            case names.EXPIRES:
                kind = ColumnKind.STATIC if is_static else ColumnKind.REGULAR
                return lifetimes_of_rows(self._base, kind, rows).column()
            case _:
                return pa.repeat(_snapshot_cell(name, position), count)

    def _are_bad(self, net: NetChanges, rows: _Rows) -> Mask:
        """Return a mask of the output rows that show a faulty cell or lack their postimage."""
        faults = faulty(net.batch)
        if not faults.any() and not net.lacks_postimage.any():
            return np.zeros(len(rows.at), bool)
        after = net.faults_after(self._values, postimages=self._base.cdc.postimage)
        shows_before = (rows.type == _PREIMAGE) | (rows.type == DELETE)
        shows_after = (rows.type == INSERT) | (rows.type == UPDATE)
        bad = at_rows(faults, rows.at) | at_rows(faults, rows.end)
        bad |= shows_before & at_rows(at_rows(faults, net.before), rows.change)
        bad |= shows_after & at_rows(after, rows.change)
        return bad

    def _column(self, name: str, net: NetChanges, rows: _Rows) -> pa.Array:
        column = self._by_name.get(name)
        if column is None:
            return self._meta(name, net, rows)
        if column.is_key:
            return _key(column, net.batch, rows)
        return self._value(column, net, rows)

    def _value(self, column: Column, net: NetChanges, rows: _Rows) -> pa.Array:
        after = net.values_after(column, postimages=self._base.cdc.postimage)
        before = net.values_before(column)
        shows_before = (rows.type == _PREIMAGE) | (rows.type == DELETE)
        place = rows.change + len(after) * shows_before
        return pick(pa.concat_arrays([after, before]), np.where(rows.change == NONE, NONE, place))

    def _meta(self, name: str, net: NetChanges, rows: _Rows) -> pa.Array:
        match name:
            case names.RANGE:
                starts = np.where(rows.end == NONE, NONE, rows.at)
                return bounds(net.batch, starts, rows.end, self.schema.field(name).type)
            case names.MODIFIED:
                return self._marked(net.modified, net, rows)
            case names.NULLED:
                return self._marked(net.set_to_null, net, rows)
            case names.EXPIRES:
                found = net.lifetimes(self._values).column()
                return pick(found, np.where(_is_upsert(rows), rows.change, NONE))
            case names.INSERTED:
                return pick(pa.array(net.has_insert), np.where(_is_upsert(rows), rows.change, NONE))
            case _:
                return _place(name, net.batch, rows)

    def _marked(self, test: Callable[[Column], Mask], net: NetChanges, rows: _Rows) -> pa.Array:
        """Return, for inserts and updates, the names of the columns that pass the test."""
        marks = np.zeros((len(net.kind) + 1, len(self._values)), bool)  # the last row is for NONE
        for place, column in enumerate(self._values):
            marks[:-1, place] = test(column)
        shown = _is_upsert(rows)
        return names_of(marks[rows.change], [column.name for column in self._values], shown)


def _snapshot_cell(name: str, position: Micros) -> pa.Scalar:
    """Return the value of a metadata column for all rows of a snapshot."""
    match name:
        case names.CHANGE_TYPE:
            return pa.scalar(_TYPES[INSERT])
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
    """Return a metadata column: the change's type, time, version or sequence number."""
    match name:
        case names.CHANGE_TYPE:
            return pa.array(_TYPES).take(pa.array(rows.type))
        case names.COMMIT_TIMESTAMP:
            return commit_timestamps(pick(batch.column(TIME), rows.at))
        case names.COMMIT_VERSION:
            return commit_versions(pick(batch.column(TIME), rows.at))
        case _:
            return pick(batch.column(BATCH_SEQ_NO), rows.at)


def _key(column: Column, batch: pa.RecordBatch, rows: _Rows) -> pa.Array:
    """Return a key column. In deletes of many rows, clustering columns are null."""
    has_none = (rows.change == NONE) & (column.kind is ColumnKind.CLUSTERING)
    return pick(batch.column(column.name), np.where(has_none, NONE, rows.at))


def _schema(base: TableSchema, wanted: ChangeFormat, types: ValueTypes) -> pa.Schema:
    fields = [
        (names.CHANGE_TYPE, pa.string()),
        (names.COMMIT_TIMESTAMP, TIMESTAMP),
        (names.COMMIT_VERSION, pa.string()),
        (names.SEQUENCE, pa.int32()),
    ]
    if wanted.include_delta:
        fields += [(names.MODIFIED, NAMES), (names.NULLED, NAMES), (names.INSERTED, pa.bool_())]
        fields.append((names.EXPIRES, lifetimes.TYPE))
    if wanted.range_deletes == "emit" and base.clustering:
        fields.append((names.RANGE, range_type(base, types)))
    fields += bad_record_field(wanted.on_bad_record)
    return with_own_columns(base, types.fields(base.columns), fields, names.ALL)


def _check_images(base: TableSchema, wanted: ChangeFormat, values: Sequence[Column]) -> None:
    images.require_preimages(base, wanted.preimages, postimages=not wanted.include_delta)
    if not wanted.include_delta:
        can_give_delta = not base.cdc.delta_keys_only and not images.unreadable_deltas(values)
        images.require_postimages(
            base,
            "format 'changes' shows rows as they are after each change, but the log has no "
            "postimages",
            "; or give include_delta to see what each change set" * can_give_delta,
        )
        return
    images.require_deltas(base, "include_delta shows what changed, but the log has keys only")
    if not base.cdc.postimage:
        images.require_readable_deltas(base, values)
