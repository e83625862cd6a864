"""Converts rows of the base table to the form of changes: static columns become separate rows.

This module also converts cells of the log to the types of the base columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader._arrow import Mask, cells, filled
from cdc_reader._time import FOREVER
from cdc_reader.changes.arrays import NONE, is_given, key_cells, repeats
from cdc_reader.changes.lifetimes import Lifetimes, expiry_of
from cdc_reader.cql.schema import Column, ColumnKind, TableSchema
from cdc_reader.cql.types import ListType, UserType, is_multi_cell
from cdc_reader.decoding.faults import without_faults
from cdc_reader.reading.ports import READ_AT, ttl_of
from cdc_reader.reading.snapshot import SnapshotRows


def base_values(logged: pa.Array, column: Column) -> pa.Array:
    """Convert cells of the log to the values that a ``SELECT`` on the base table returns.

    In the log, a list is a map from time UUIDs to elements, in the order of the list. In the base
    table, an empty non-frozen collection or UDT is null.
    """
    if not is_multi_cell(column.type):
        return logged
    values = _elements(logged) if isinstance(column.type, ListType) else logged
    return _null_where(is_empty(logged, column), values)


def is_empty(logged: pa.Array, column: Column) -> pa.Array:
    """Return a mask of the empty cells in a column of a non-frozen collection or UDT."""
    if isinstance(column.type, UserType):
        return _all_null(logged)
    return pc.equal(_lengths(logged), 0)


def _elements(logged: pa.MapArray) -> pa.ListArray:
    offsets = pc.add(logged.offsets, 0)  # a copy: Arrow does not accept a mask with a slice
    kind = pa.list_(pa.field("element", logged.type.item_type))
    return pa.ListArray.from_arrays(offsets, logged.items, type=kind, mask=logged.is_null())


def _lengths(collection: pa.Array) -> pa.Array:
    if not pa.types.is_map(collection.type):
        return pc.list_value_length(collection)
    offsets = collection.offsets
    return pc.subtract(offsets[1:], offsets[:-1])


def _all_null(struct: pa.StructArray) -> pa.Array:
    nulls = pa.array([True] * len(struct), pa.bool_())
    for field in struct.flatten():
        nulls = pc.and_(nulls, field.is_null())
    return nulls


def _null_where(mask: pa.Array, values: pa.Array) -> pa.Array:
    if not pc.any(mask).as_py():
        return values
    return pc.if_else(mask, pa.scalar(None, values.type), values)


def lifetimes_of_rows(base: TableSchema, kind: ColumnKind, rows: pa.RecordBatch) -> Lifetimes:
    """Return when rows of the base table expire, from the TTLs of their columns of one kind.

    The server gives neither the TTL of elements of a collection nor that of a row marker. In a
    table with a default TTL, the marker is taken to expire with the last of the row's cells, if
    these have TTLs; otherwise, it may expire after the default TTL, as may elements, or never. In
    other tables, neither expires. Without the columns of TTLs, nothing expires.
    """
    count = rows.num_rows
    if READ_AT not in rows.schema.names:
        return Lifetimes.endless(count)
    read_at, default = cells(rows.column(READ_AT)), base.default_ttl
    latest = expiry_of(read_at, default) if default else np.full(count, FOREVER, np.int64)
    expiries, lives = [], []
    lives_of_cells, lives_of_elements = list[Mask](), list[Mask]()
    for column in base.of_kind(kind):
        lives.append(is_given(rows, column.name))
        its = lives_of_elements if is_multi_cell(column.type) else lives_of_cells
        its.append(lives[-1])
        expiry = latest
        if not is_multi_cell(column.type):
            ttls = filled(rows.column(ttl_of(column.name)), NONE).astype(np.int64)
            expiry = np.where(ttls == NONE, FOREVER, expiry_of(read_at, ttls))
        expiries.append(expiry)
    found = Lifetimes.of_parts(expiries, lives, count)
    if kind is ColumnKind.STATIC:
        return found
    has_cells = reduce(or_, lives_of_cells, np.zeros(count, bool))
    has_elements = reduce(or_, lives_of_elements, np.zeros(count, bool))
    is_known = (default > 0) & has_cells & ~has_elements
    marker = np.where(is_known, found.last, latest)
    found = found.with_parts(Lifetimes.of_parts([marker], [np.ones(count, bool)], count))
    return Lifetimes(found.first, found.last, found.whole & is_known)


class TableRows:
    """Splits rows of the base table, given in order, into static rows and other rows.

    A ``SELECT`` returns static columns in every row of a partition, or in a row with a null
    clustering key if the partition has no other rows.
    """

    def __init__(self, base: TableSchema) -> None:
        self._base = base
        self._key = base.clustering
        self._statics = _names(base.of_kind(ColumnKind.STATIC))
        self._regulars = _names(base.of_kind(ColumnKind.REGULAR))
        self._before: pa.RecordBatch | None = None

    def feed(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Yield (batch, is_static) pairs.

        Clustering and regular columns are null in static batches; static columns are null in the
        other batches.
        """
        if not (self._statics and self._key):
            yield batch, False
            return
        first = _first_of_partition(batch, self._before, self._base)
        self._before = batch.slice(batch.num_rows - 1)
        has_static = np.any([is_given(batch, name) for name in self._statics], axis=0)
        shown = batch.filter(pa.array(first & has_static))
        yield from _some(_without(shown, [*self._regulars, *_names(self._key)]), is_static=True)
        rows = batch.filter(pa.array(is_given(batch, self._key[0].name)))
        yield from _some(_without(rows, self._statics), is_static=False)


class SplitRows:
    """Splits the rows of a snapshot, as `TableRows` does.

    Deliveries of different ranges may be interleaved.
    """

    def __init__(self) -> None:
        self._ranges: dict[int, TableRows] = {}

    def feed(
        self, delivery: SnapshotRows, base: TableSchema
    ) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Yield batches, each with a flag that is True for static rows; see `TableRows`.

        `base` contains some or all columns of the delivery's table.
        """
        rows = self._ranges.setdefault(delivery.reading, TableRows(base))
        return rows.feed(delivery.batch)

    def end(self, reading: int) -> None:
        """Discard the state of a range that has been read to its end."""
        self._ranges.pop(reading, None)


def _some(rows: pa.RecordBatch, *, is_static: bool) -> Iterator[tuple[pa.RecordBatch, bool]]:
    if rows.num_rows:
        yield rows, is_static


def _first_of_partition(
    batch: pa.RecordBatch, before: pa.RecordBatch | None, base: TableSchema
) -> Mask:
    """Return a mask of each partition's first row.

    `before` is the row before the batch, or None.
    """
    joined = batch if before is None else pa.concat_batches([before, batch])
    key = _names(base.partition_key)
    other = ~np.all([repeats(key_cells(joined, name)) for name in key], axis=0)
    return other if before is not None else np.concatenate([[True], other])


def _without(batch: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
    """Return the batch with the given columns set to null, and without their faults."""
    for name in names:
        place = batch.schema.get_field_index(name)
        nulls = pa.nulls(batch.num_rows, batch.schema.field(place).type)
        batch = batch.set_column(place, batch.schema.field(place), nulls)
    return without_faults(batch, names)


def _names(columns: Iterable[Column]) -> list[str]:
    return [column.name for column in columns]
