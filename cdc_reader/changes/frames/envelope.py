"""Format ``envelope``: changes in the format of the Debezium connector for ScyllaDB.

A column outside the key is a struct with one field, ``value``. If the struct is null, the column
is not shown; if ``value`` is null, the column is null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader._arrow import Mask
from cdc_reader._time import Micros, SystemClock
from cdc_reader.changes.arrays import NONE, at_rows, faulty, pick
from cdc_reader.changes.frames import images
from cdc_reader.changes.frames.bad_records import (
    BadRecords,
    Origins,
    Part,
    bad_record_field,
    snapshot_parts,
)
from cdc_reader.changes.frames.columns import log_columns
from cdc_reader.changes.frames.commit_time import commit_timestamps, commit_versions
from cdc_reader.changes.frames.net_changes import DELETE, NetChanges, read_changes
from cdc_reader.changes.frames.options import FormatOptions, Preimages
from cdc_reader.changes.frames.value_types import ValueTypes
from cdc_reader.cql.schema import (
    BATCH_SEQ_NO,
    TIME,
    Column,
    ColumnKind,
    ImageMode,
    LogSchema,
)
from cdc_reader.cql.timeuuid import bound

SOURCE = pa.struct(
    [
        ("connector", pa.string()),
        ("keyspace_name", pa.string()),
        ("table_name", pa.string()),
        ("ts_ms", pa.int64()),
        ("ts_us", pa.int64()),
        ("commit_version", pa.string()),
        ("sequence", pa.int32()),
        ("snapshot", pa.string()),
    ]
)
_OPS = ("c", "u", "d")
"""Operation codes by kind of net change."""


class EnvelopeFormat:
    """One output row for each change to a row: `op`, `before`, `after`, `source`, `ts_ms`.

    Raises UnsupportedTableError if the table's log lacks images or deltas that the options need.
    """

    def __init__(self, schema: LogSchema, options: FormatOptions) -> None:
        self._log = schema
        self._base = schema.base
        self._options = options
        self.is_tolerant = options.is_tolerant
        self._values = schema.base.values
        self._check()
        row = pa.struct([_field(column, options.types) for column in schema.base.columns])
        self.schema = pa.schema(
            [
                ("op", pa.string()),
                ("before", row),
                ("after", row),
                ("source", SOURCE),
                ("ts_ms", pa.int64()),
                *bad_record_field(options.on_bad_record),
            ]
        )

    def log_columns(self, wanted: Collection[str]) -> tuple[Column, ...]:
        """Return the log columns that must be read to produce the columns `wanted`.

        Without `before` and `after`, no columns outside the key and the metadata are read.
        """
        rows = "before" in wanted or "after" in wanted
        values = [column.name for column in self._values] if rows else []
        return log_columns(self._log, values, deltas=rows)

    def convert(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Convert rows of the log to changes, with the columns of `schema`."""

        def parts() -> Iterator[Part]:
            for found, _ in read_changes(batches, self._base, self._options):
                net = found.in_order
                origins = Origins(net.batch, net.at, net.rows.changes, self._are_bad(net))
                yield origins, partial(self._column, net=net)

        return BadRecords(self._options.on_bad_record, self._base, schema).rows(parts())

    def snapshot(
        self, rows: Iterable[tuple[pa.RecordBatch, bool]], schema: pa.Schema, position: Micros
    ) -> Iterator[pa.RecordBatch]:
        """Convert rows of the base table, read as of `position` (µs).

        `schema` contains the columns of the result.
        """
        parts = snapshot_parts(rows, partial(self._of_snapshot, position=position))
        return BadRecords(self._options.on_bad_record, self._base, schema).rows(parts)

    def _check(self) -> None:
        """Raise UnsupportedTableError if the log lacks what the options need."""
        if self._options.preimages is Preimages.REQUIRE:
            images.require_full_preimages(self._base, "preimages is 'require', but")
        if not self._base.cdc.postimage:
            images.require_readable_deltas(self._base, self._values)

    def _of_snapshot(
        self, name: str, rows: pa.RecordBatch, position: Micros, *, is_static: bool
    ) -> pa.Array:
        count = rows.num_rows
        match name:
            case "op":
                return pa.repeat("r", count)
            case "before":
                return pa.nulls(count, self.schema.field(name).type)
            case "after":
                return self._rows(self._snapshot_cells(rows, is_static), np.ones(count, bool))
            case "source":
                times = pa.repeat(str(bound(position)), count)
                return self._source(times, pa.repeat(pa.scalar(0, pa.int32()), count), "true")
            case _:
                return pa.array(np.full(count, SystemClock().now() // 1_000))

    def _snapshot_cells(self, rows: pa.RecordBatch, is_static: bool) -> list[pa.Array]:
        def shown(column: Column) -> Mask:
            return np.full(rows.num_rows, (column.kind is ColumnKind.STATIC) == is_static)

        return [
            rows.column(column.name)
            if column.is_key
            else _cells(rows.column(column.name), shown(column))
            for column in self._base.columns
        ]

    def _column(self, name: str, net: NetChanges) -> pa.Array:
        match name:
            case "op":
                return pa.array(_OPS).take(pa.array(net.kind))
            case "before":
                return self._before(net)
            case "after":
                return self._after(net)
            case "source":
                times = pick(net.batch.column(TIME), net.at)
                return self._source(times, pick(net.batch.column(BATCH_SEQ_NO), net.at), "false")
            case _:
                return pa.array(np.full(len(net.at), SystemClock().now() // 1_000))

    def _before(self, net: NetChanges) -> pa.Array:
        """Return the row before each change; for a delete, it contains at least the key."""
        has_image = (net.before != NONE) & self._gives_preimages
        cells = [
            pick(net.batch.column(column.name), net.at)
            if column.is_key
            else _cells(net.values_before(column), has_image & self._shown_before(column, net))
            for column in self._base.columns
        ]
        return self._rows(cells, has_image | (net.kind == DELETE))

    def _after(self, net: NetChanges) -> pa.Array:
        whole = self._base.cdc.postimage
        cells = [
            pick(net.batch.column(column.name), net.at)
            if column.is_key
            else _cells(
                net.values_after(column, postimages=whole),
                _in_image(column, net) if whole else net.modified(column),
            )
            for column in self._base.columns
        ]
        return self._rows(cells, net.kind != DELETE)

    def _are_bad(self, net: NetChanges) -> Mask:
        """Return a mask of the changes that show a faulty cell or lack their postimage."""
        faults = faulty(net.batch)
        bad = net.faults_after(self._values, postimages=self._base.cdc.postimage)
        return bad | at_rows(faults, net.before) if self._gives_preimages else bad

    def _rows(self, cells: list[pa.Array], shown: Mask) -> pa.Array:
        fields = list(self.schema.field("after").type)
        return pa.StructArray.from_arrays(cells, fields=fields, mask=pa.array(~shown))

    def _shown_before(self, column: Column, net: NetChanges) -> Mask:
        """Return a mask of the changes that have a preimage with the column.

        A partial preimage shows only the touched columns, or all columns of a deleted row.
        """
        if self._base.cdc.preimage is ImageMode.FULL:
            return _in_image(column, net)
        return net.shown_before(column)

    def _source(self, times: pa.Array, sequence: pa.Array, snapshot: str) -> pa.Array:
        micros = commit_timestamps(times).cast(pa.int64())
        count = len(times)
        name = self._base.name
        parts = [
            pa.repeat("scylla", count),
            pa.repeat(name.keyspace, count),
            pa.repeat(name.name, count),
            pc.divide(micros, 1_000),
            micros,
            commit_versions(times),
            sequence,
            pa.repeat(snapshot, count),
        ]
        return pa.StructArray.from_arrays(parts, fields=list(SOURCE))

    @property
    def _gives_preimages(self) -> bool:
        """Whether `before` shows preimages, even partial ones, whose missing columns are null."""
        return images.gives_preimages(self._base.cdc, self._options.preimages, partial=True)


def _cells(values: pa.Array, shown: Mask) -> pa.Array:
    fields = [pa.field("value", values.type)]
    return pa.StructArray.from_arrays([values], fields=fields, mask=pa.array(~shown))


def _in_image(column: Column, net: NetChanges) -> Mask:
    """Return a mask of the images that contain the column.

    Static columns are only in images of static rows, and regular columns only in other images.
    """
    return net.is_static if column.kind is ColumnKind.STATIC else ~net.is_static


def _field(column: Column, types: ValueTypes) -> pa.Field:
    kind = types.of(column.type)
    return pa.field(column.name, kind if column.is_key else pa.struct([("value", kind)]))
