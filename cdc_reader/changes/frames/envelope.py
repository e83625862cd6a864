"""Format ``envelope``: changes in the format of the Debezium connector for ScyllaDB.

The columns are those of the connector's advanced output, with the key in `before`, in `after` and
in `key`. Values have the form in which Kafka Connect's JSON converter writes them; see
`connect_values`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from importlib.metadata import version

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve

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
from cdc_reader.changes.frames.change_format import ChangeFormat
from cdc_reader.changes.frames.columns import log_columns
from cdc_reader.changes.frames.commit_time import commit_timestamps, commit_versions
from cdc_reader.changes.frames.connect_values import connect_type, connect_values
from cdc_reader.changes.frames.net_changes import DELETE, NetChanges, read_changes
from cdc_reader.changes.frames.value_types import ValueTypes
from cdc_reader.cql.schema import BATCH_SEQ_NO, TIME, Column, LogSchema
from cdc_reader.cql.timeuuid import bound
from cdc_reader.decoding.arrow_type import NATIVE

SOURCE = pa.struct(
    [
        ("version", pa.string()),
        ("connector", pa.string()),
        ("name", pa.string()),
        ("ts_ms", pa.int64()),
        ("snapshot", pa.string()),
        ("db", pa.string()),
        ("sequence", pa.string()),
        ("ts_us", pa.int64()),
        ("ts_ns", pa.int64()),
        ("keyspace_name", pa.string()),
        ("table_name", pa.string()),
    ]
)
TRANSACTION = pa.struct(
    [("id", pa.string()), ("total_order", pa.int64()), ("data_collection_order", pa.int64())]
)
Keys = dict[str, pa.Array]
"""The cells of the key columns, by name."""
_OPS = ("c", "u", "d")
"""Operation codes by kind of net change."""


class EnvelopeFormat:
    """One output row for each change to a row: `op`, `before`, `after`, `key`, `source` and times.

    Raises UnsupportedTableError if the table's log lacks images that the options need.
    """

    def __init__(self, schema: LogSchema, wanted: ChangeFormat) -> None:
        self._log = schema
        self._base = schema.base
        self._wanted = wanted
        types = ValueTypes.parse(wanted.decimal_type, schema.base)
        self._types = evolve(types, timestamp=NATIVE["timestamp"])
        self.is_tolerant = wanted.on_bad_record != "fail"
        images.require_preimages(self._base, wanted.preimages, postimages=True)
        images.require_postimages(
            self._base,
            "format 'envelope' shows rows as they are after each change, but the log has no "
            "postimages",
        )
        self._gives_before = images.gives_preimages(self._base.cdc, wanted.preimages, partial=False)
        row = self._row_type(schema.base.columns)
        self.schema = pa.schema(
            [
                ("op", pa.string()),
                ("before", row),
                ("after", row),
                ("key", self._row_type([each for each in schema.base.columns if each.is_key])),
                ("source", SOURCE),
                ("ts_ms", pa.int64()),
                ("transaction", TRANSACTION),
                ("ts_us", pa.int64()),
                ("ts_ns", pa.int64()),
                *bad_record_field(wanted.on_bad_record),
            ]
        )

    def log_columns(self, wanted: Collection[str]) -> tuple[Column, ...]:
        """Return the log columns that must be read to produce the columns `wanted`.

        Without `before` and `after`, no columns outside the key and the metadata are read.
        """
        shows_rows = "after" in wanted or ("before" in wanted and self._gives_before)
        values = [column.name for column in self._base.values] if shows_rows else []
        return log_columns(self._log, values, deltas=False)

    def convert(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Convert rows of the log to changes, with the columns of `schema`."""
        typed = map(self._types.converter(self._log.columns), batches)

        def parts() -> Iterator[Part]:
            for found, _ in read_changes(typed, self._base, self._wanted):
                net = found.in_order
                origins = Origins(net.batch, net.at, net.rows.changes, self._are_bad(net))
                keys = self._key_cells(net.key)
                yield origins, partial(self._column, net=net, keys=keys)

        return BadRecords(self._wanted.on_bad_record, self._base, schema).rows(parts())

    def snapshot(
        self, rows: Iterable[tuple[pa.RecordBatch, bool]], schema: pa.Schema, position: Micros
    ) -> Iterator[pa.RecordBatch]:
        """Convert rows of the base table, read as of `position` (µs).

        `schema` contains the columns of the result.
        """
        typed = self._types.converter(self._base.columns)
        found = ((typed(batch), is_static) for batch, is_static in rows)
        parts = snapshot_parts(found, partial(self._of_snapshot, position=position))
        return BadRecords(self._wanted.on_bad_record, self._base, schema).rows(parts)

    def _of_snapshot(
        self, name: str, rows: pa.RecordBatch, position: Micros, *, is_static: bool
    ) -> pa.Array:
        del is_static  # the other columns of a static row are null, as in the log
        count = rows.num_rows
        match name:
            case "op":
                return pa.repeat("r", count)
            case "after":
                keys, shown = self._key_cells(rows.column), np.ones(count, bool)
                return self._rows(keys, lambda column: rows.column(column.name), shown)
            case "key":
                return self._key(self._key_cells(rows.column))
            case "source":
                times = pa.repeat(str(bound(position)), count)
                return self._source(times, pa.repeat(pa.scalar(0, pa.int32()), count), "true")
            case _:
                return self._constant(name, count)

    def _column(self, name: str, net: NetChanges, keys: Keys) -> pa.Array:
        match name:
            case "op":
                return pa.array(_OPS).take(pa.array(net.kind))
            case "before" if self._gives_before:
                return self._rows(keys, net.values_before, net.before != NONE)
            case "after":
                after = partial(net.values_after, postimages=True)
                return self._rows(keys, after, net.kind != DELETE)
            case "key":
                return self._key(keys)
            case "source":
                times = pick(net.batch.column(TIME), net.at)
                return self._source(times, pick(net.batch.column(BATCH_SEQ_NO), net.at), "false")
            case _:
                return self._constant(name, len(net.at))

    def _are_bad(self, net: NetChanges) -> Mask:
        """Return a mask of the changes that show a faulty cell or lack their postimage."""
        bad = net.faults_after((), postimages=True)
        return bad | at_rows(faulty(net.batch), net.before) if self._gives_before else bad

    def _row_type(self, columns: Iterable[Column]) -> pa.DataType:
        return pa.struct(
            [
                (column.name, connect_type(column.type, self._types.in_column(column.name)))
                for column in columns
            ]
        )

    def _values(self, cells: pa.Array, column: Column) -> pa.Array:
        return connect_values(cells, column.type, self._types.in_column(column.name))

    def _key_cells(self, cells: Callable[[str], pa.Array]) -> Keys:
        return {
            column.name: self._values(cells(column.name), column)
            for column in self._base.columns
            if column.is_key
        }

    def _key(self, keys: Keys) -> pa.Array:
        fields = list(self.schema.field("key").type)
        return pa.StructArray.from_arrays(list(keys.values()), fields=fields)

    def _rows(self, keys: Keys, cells: Callable[[Column], pa.Array], shown: Mask) -> pa.Array:
        """Return whole rows of the table; null where `shown` is False."""
        made = [
            keys[column.name] if column.is_key else self._values(cells(column), column)
            for column in self._base.columns
        ]
        fields = list(self.schema.field("after").type)
        return pa.StructArray.from_arrays(made, fields=fields, mask=pa.array(~shown))

    def _source(self, times: pa.Array, sequence: pa.Array, snapshot: str) -> pa.Array:
        micros = commit_timestamps(times).cast(pa.int64())
        count, name = len(times), self._base.name
        text = pc.binary_join_element_wise(
            '["', commit_versions(times), '","', sequence.cast(pa.string()), '"]', ""
        )
        parts = [
            pa.repeat(version("scylla-cdc"), count),
            pa.repeat("scylla", count),
            pa.repeat("scylla-cdc", count),
            pc.divide(micros, 1_000),
            pa.repeat(snapshot, count),
            pa.repeat(name.keyspace, count),
            text,
            micros,
            pc.multiply(micros, 1_000),
            pa.repeat(name.keyspace, count),
            pa.repeat(name.name, count),
        ]
        return pa.StructArray.from_arrays(parts, fields=list(SOURCE))

    def _constant(self, name: str, count: int) -> pa.Array:
        """Return a column of the current time, or of nulls for `before` and `transaction`."""
        if not name.startswith("ts_"):
            return pa.nulls(count, self.schema.field(name).type)
        now = SystemClock().now()
        return pa.repeat({"ts_ms": now // 1_000, "ts_us": now, "ts_ns": now * 1_000}[name], count)
