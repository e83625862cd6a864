"""The variant of format ``envelope`` that matches the Debezium connector's advanced output.

Values have the form in which Kafka Connect's JSON converter writes them; see `connect_values`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from importlib.metadata import version

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader._arrow import Mask
from cdc_reader._time import Micros, SystemClock
from cdc_reader.changes.arrays import NONE, at_rows, faulty, pick
from cdc_reader.changes.frames import images
from cdc_reader.changes.frames.bad_records import bad_record_field
from cdc_reader.changes.frames.columns import log_columns
from cdc_reader.changes.frames.commit_time import commit_timestamps, commit_versions
from cdc_reader.changes.frames.connect_values import connect_type, connect_values
from cdc_reader.changes.frames.envelope import EnvelopeFormat
from cdc_reader.changes.frames.net_changes import DELETE, UPDATE, NetChanges
from cdc_reader.changes.frames.options import (
    AdvancedEnvelope,
    FormatOptions,
    IncludedImage,
    KeyPlacement,
)
from cdc_reader.cql.schema import Column, LogSchema

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
_KEY = "key"


class AdvancedEnvelopeFormat(EnvelopeFormat):
    """One output row for each change to a row, as in the connector's advanced output.

    Raises UnsupportedTableError if the table's log lacks images or deltas that the options need.
    """

    def __init__(self, schema: LogSchema, options: FormatOptions) -> None:
        self._envelope = options.envelope or AdvancedEnvelope()
        super().__init__(schema, options)
        key = [(_KEY, self._row_type(KeyPlacement.PAYLOAD_KEY, values=False))]
        self.schema = pa.schema(
            [
                ("op", pa.string()),
                ("before", self._row_type(KeyPlacement.PAYLOAD_BEFORE)),
                ("after", self._row_type(KeyPlacement.PAYLOAD_AFTER)),
                *(key if self._is_placed(KeyPlacement.PAYLOAD_KEY) else []),
                ("source", SOURCE),
                ("ts_ms", pa.int64()),
                ("transaction", TRANSACTION),
                ("ts_us", pa.int64()),
                ("ts_ns", pa.int64()),
                *bad_record_field(options.on_bad_record),
            ]
        )

    def log_columns(self, wanted: Collection[str]) -> tuple[Column, ...]:
        """Return the log columns for the key, the time and the included images."""
        rows = any(self._gives(image) and image in wanted for image in ("before", "after"))
        values = [column.name for column in self._values] if rows else []
        deltas = IncludedImage.ONLY_UPDATED in (self._envelope.before, self._envelope.after)
        return log_columns(self._log, values, deltas=deltas)

    def _check(self) -> None:
        """Raise UnsupportedTableError if the log lacks images or deltas that the options need."""
        if self._gives("before"):
            reason = "the envelope includes 'before', but"
            images.require_full_preimages(self._base, reason)
        if self._gives("after"):
            reason = "the envelope includes 'after', but the log has no postimages"
            images.require_postimages(self._base, reason)
        for image in ("before", "after"):
            if self._included(image) is IncludedImage.ONLY_UPDATED:
                shown = f"the envelope includes only updated columns in {image!r}"
                images.require_deltas(self._base, f"{shown}, but the log has keys only")

    def _included(self, image: str) -> IncludedImage:
        included: IncludedImage = getattr(self._envelope, image)
        return included

    def _gives(self, image: str) -> bool:
        return self._included(image) is not IncludedImage.NONE

    def _is_placed(self, place: KeyPlacement) -> bool:
        return place in self._envelope.key_placement

    def _columns(self, place: KeyPlacement, *, values: bool) -> list[Column]:
        """Return the columns of the row at `place`.

        The key columns are included if the key is placed there. The other columns are included if
        `values` is True.
        """
        columns = self._base.columns
        return [each for each in columns if (self._is_placed(place) if each.is_key else values)]

    def _row_type(self, place: KeyPlacement, *, values: bool = True) -> pa.DataType:
        types = self._options.types
        columns = self._columns(place, values=values)
        return pa.struct([(each.name, connect_type(each.type, types)) for each in columns])

    def _row(
        self,
        place: KeyPlacement,
        cells: Callable[[Column], pa.Array],
        shown: Mask,
        *,
        values: bool = True,
    ) -> pa.Array:
        columns, types = self._columns(place, values=values), self._options.types
        made = [connect_values(cells(each), each.type, types) for each in columns]
        kind, nulls = self._row_type(place, values=values), pa.array(~shown)
        if not made:
            return pa.array([{} if is_shown else None for is_shown in shown], kind)
        return pa.StructArray.from_arrays(made, fields=list(kind), mask=nulls)

    def _cells(self, net: NetChanges, image: str, column: Column) -> pa.Array:
        """Return the column's cells in an image; key cells come from the changes themselves."""
        if column.is_key:
            return pick(net.batch.column(column.name), net.at)
        is_before = image == "before"
        values = (
            net.values_before(column) if is_before else net.values_after(column, postimages=True)
        )
        if self._included(image) is IncludedImage.FULL:
            return values
        shown = (net.kind != UPDATE) | net.modified(column)
        return pick(values, np.where(shown, np.arange(len(shown)), NONE))

    def _column(self, name: str, net: NetChanges) -> pa.Array:
        cells = partial(self._cells, net, name)
        every = np.ones(len(net.at), bool)
        match name:
            case "before" | "after" if not self._gives(name):
                return pa.nulls(len(net.at), self.schema.field(name).type)
            case "before":
                return self._row(KeyPlacement.PAYLOAD_BEFORE, cells, net.before != NONE)
            case "after":
                return self._row(KeyPlacement.PAYLOAD_AFTER, cells, net.kind != DELETE)
            case "key":
                return self._row(KeyPlacement.PAYLOAD_KEY, cells, every, values=False)
            case "transaction" | "ts_us" | "ts_ns":
                return _constant(name, len(net.at))
            case _:
                return super()._column(name, net)

    def _of_snapshot(
        self, name: str, rows: pa.RecordBatch, position: Micros, *, is_static: bool
    ) -> pa.Array:
        def cells(column: Column) -> pa.Array:
            return rows.column(column.name)

        count = rows.num_rows
        match name:
            case "after" if not self._gives(name):
                return pa.nulls(count, self.schema.field(name).type)
            case "after":
                return self._row(KeyPlacement.PAYLOAD_AFTER, cells, np.ones(count, bool))
            case "key":
                every = np.ones(count, bool)
                return self._row(KeyPlacement.PAYLOAD_KEY, cells, every, values=False)
            case "transaction" | "ts_us" | "ts_ns":
                return _constant(name, count)
            case _:
                return super()._of_snapshot(name, rows, position, is_static=is_static)

    def _are_bad(self, net: NetChanges) -> Mask:
        """Return a mask of the changes that show a faulty cell or lack their postimage."""
        bad = net.faults_after((), postimages=True)
        if self._gives("after"):
            bad = bad | at_rows(faulty(net.batch), net.after)
        return bad | at_rows(faulty(net.batch), net.before) if self._gives("before") else bad

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


def _constant(name: str, count: int) -> pa.Array:
    """Return a column of the current time, in µs or ns, or of nulls for `transaction`."""
    if name == "transaction":
        return pa.nulls(count, TRANSACTION)
    now = SystemClock().now()
    return pa.array(np.full(count, now if name == "ts_us" else now * 1_000))
