"""A page of log rows as columns of Python values, converted on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from cdc_reader import decoding
from cdc_reader._arrow import Mask, to_arrow, to_numpy, valid
from cdc_reader.changes.arrays import Indices, is_given
from cdc_reader.changes.delta import DELETED, Assigned, CollectionDelta, Delta
from cdc_reader.cql.order import ClusteringOrder
from cdc_reader.cql.schema import (
    DELETED_PREFIX,
    FAULTS,
    OPERATION,
    REMOVED_PREFIX,
    Column,
    ColumnKind,
    LogSchema,
    Operation,
)
from cdc_reader.cql.types import SetType, UserType, is_multi_cell
from cdc_reader.cql.values import FrozenDict, converter, plain, uuids
from cdc_reader.decoding import Field
from cdc_reader.decoding.faults import Fault, faults_of
from cdc_reader.reading.ports import ttl_of, written_of

Deltas = FrozenDict[str, Delta]

Image = FrozenDict[str, Any]
"""A row's values by column, as they were before or after the change; null is None."""

Values = Sequence[Any]
"""The values of a log column, one for each row; null is None."""


@frozen
class AtomicColumn:
    """A column with one cell per row.

    `values` and `deleted` are each None if the log column is null in all rows.
    """

    name: str
    values: Values | None
    deleted: Values | None

    @property
    def is_given(self) -> bool:
        """Whether the column has a value or a deletion in any row."""
        return self.values is not None or self.deleted is not None

    def of_deltas(self) -> Field:
        """Return the field that puts the column's deltas into mappings."""
        return decoding.GivenField(self.name, self.values, self.deleted, DELETED, Assigned)

    def of_images(self, *, whole: bool) -> Field:
        """Return the field that puts the column into images; see `LogPage.image_fields`."""
        if whole:
            return decoding.Field(self.name, self.values)
        return decoding.GivenField(self.name, self.values, self.deleted)


@frozen
class CollectionColumn:
    """A column with one cell per element: a non-frozen collection or user-defined type.

    `values`, `deleted` and `removed` are each None if the log column is null in all rows.
    """

    column: Column
    values: Values | None
    deleted: Values | None
    removed: Values | None

    @property
    def is_given(self) -> bool:
        """Whether the column has elements, a deletion or removed elements in any row."""
        return any(each is not None for each in (self.values, self.deleted, self.removed))

    def of_deltas(self) -> CollectionDeltas:
        """Return the field that puts the column's deltas into mappings."""
        return CollectionDeltas(self)

    def of_images(self, *, whole: bool) -> Field:
        """Return the field that puts the column into images; see `LogPage.image_fields`."""
        values = self.values and [self._shown(value) for value in self.values]
        return AtomicColumn(self.column.name, values, self.deleted).of_images(whole=whole)

    def _shown(self, value: Any) -> Any:
        """Return the value that an image shows: null for an empty collection or UDT.

        A UDT is empty if all its fields are null.
        """
        is_udt = isinstance(self.column.type, UserType)
        return value if value and (not is_udt or self.added(value)) else None

    def added(self, value: Any) -> Any:
        """Return the elements that a row sets.

        Null fields of a UDT are left out, because the row leaves them unchanged.
        """
        if isinstance(self.column.type, UserType):
            fields = (value or {}).items()
            return FrozenDict({name: cell for name, cell in fields if cell is not None})
        if value is None:
            return frozenset() if isinstance(self.column.type, SetType) else FrozenDict()
        return value

    def gone(self, removed: frozenset[Any] | None) -> frozenset[Any]:
        """Return the removed elements, or the names of a UDT's removed fields.

        The log identifies a UDT's removed fields by their indices.
        """
        if removed and isinstance(self.column.type, UserType):
            fields = self.column.type.fields
            return frozenset(fields[i][0] if i < len(fields) else f"[{i}]" for i in removed)
        return removed or frozenset()


@frozen
class CollectionDeltas:
    """A field, like `decoding.Field`, that puts the deltas of a collection into mappings."""

    cells: CollectionColumn

    def put(self, mapping: Deltas, row: int) -> None:
        """Put the row's delta into its mapping, unless the row leaves the column unchanged."""
        if (delta := self._delta(row)) is not None:
            dict.__setitem__(mapping, self.cells.column.name, delta)  # a FrozenDict is read-only

    def _delta(self, row: int) -> Delta | None:
        cells = self.cells
        columns = cells.values, cells.deleted, cells.removed
        value, overwritten, removed = (None if each is None else each[row] for each in columns)
        if value is None and removed is None:
            return DELETED if overwritten else None
        added, gone = cells.added(value), cells.gone(removed)
        if overwritten and not added and not gone:
            return DELETED
        return CollectionDelta(bool(overwritten), added, gone)


class Layout:
    """The mapping from the columns of a log to the columns of its base table."""

    def __init__(self, schema: LogSchema) -> None:
        self.schema = schema
        self.partition_key = tuple(column.name for column in schema.base.partition_key)
        self.clustering = tuple(column.name for column in schema.base.clustering)
        self.converters = {column.name: _converter(column) for column in schema.columns}
        self.of_cells = tuple(
            of(column.name) for of in (ttl_of, written_of) for column in schema.base.columns
        )
        """The columns with the TTLs and write times of cells; only snapshots contain them."""
        self.converters.update(dict.fromkeys(self.of_cells, decoding.values))

    @cached_property
    def order(self) -> ClusteringOrder:
        """The server's order of clustering keys; see `ClusteringOrder` for the errors."""
        return ClusteringOrder(self.schema.base)

    def columns(self, *, static: bool) -> list[Column]:
        """Return the static or the regular base columns that the log contains."""
        kind = ColumnKind.STATIC if static else ColumnKind.REGULAR
        known = self.converters
        return [column for column in self.schema.base.of_kind(kind) if column.name in known]


_COMPILED = {plain: decoding.values, uuids: decoding.uuids}
"""Converters, mapped to the kernel's functions that replace them."""


def _converter(column: Column) -> Callable[[pa.Array], Values]:
    convert = converter(column.type)
    return _COMPILED.get(convert, convert)


layout_of = lru_cache(maxsize=64)(Layout)
"""Return the layout of a schema. Layouts are cached."""


class LogPage(dict[str, Values]):
    """The columns of `count` log rows, by name.

    A column that the log lacks is null in all rows. The page refers to its batch, and every change
    made from the page refers to the page, so both stay in memory. If `late` is True, the rows are
    strays, or were delivered after later rows of their stream.
    """

    def __init__(self, layout: Layout, batch: pa.RecordBatch, *, late: bool = False) -> None:
        super().__init__()
        self.layout = layout
        self.late = late
        self.count = batch.num_rows
        self.batch = batch

    @classmethod
    def of_values(
        cls, layout: Layout, columns: Mapping[str, Values], *, late: bool = False
    ) -> LogPage:
        """Create a page from converted values; missing columns are null."""
        count = len(next(iter(columns.values()), []))
        page = cls(layout, pa.RecordBatch.from_arrays([pa.nulls(count)], names=[""]), late=late)
        page.update(columns)
        return page

    def __missing__(self, name: str) -> Values:
        values = self[name] = self._convert(name)
        return values

    def at(self, name: str, rows: Indices) -> Values:
        """Return the values of a column at the given rows."""
        if name in self._names:
            return self.layout.converters[name](self.batch.column(name).take(to_arrow(rows)))
        values = self[name]
        return [values[row] for row in rows.tolist()]

    def rows(self, rows: Sequence[int]) -> dict[str, list[Any]]:
        """Return the values of the given rows by column, without columns that are all null."""
        names = [*(column.name for column in self.layout.schema.columns), *self.layout.of_cells]
        found = {name: [self[name][row] for row in rows] for name in names if self.has(name)}
        if self.faults:
            found[FAULTS] = [self.faults.get(row) for row in rows]
        return {name: cells for name, cells in found.items() if _any(cells)}

    @cached_property
    def faults(self) -> Mapping[int, list[Fault]]:
        """The cells that could not be decoded, and are null here, of each row that has any."""
        if FAULTS in self:
            return {row: faults for row, faults in enumerate(self[FAULTS]) if faults}
        return faults_of(self.batch)

    @cached_property
    def operations(self) -> list[Operation]:
        """The operation of each row."""
        codes = self[OPERATION]
        named = {code: Operation(code) for code in set(codes)}
        return [named[code] for code in codes]

    @cached_property
    def are_static(self) -> Mask:
        """For each row, whether it lacks a clustering key, as static rows do."""
        if not self.layout.clustering:
            return np.zeros(self.count, bool)
        name = self.layout.clustering[0]
        if name in self._names:
            return ~is_given(self.batch, name)
        bad = {row for row, faults in self.faults.items() if any(f.column == name for f in faults)}
        are_null = (value is None for value in self[name])
        return np.array([null and row not in bad for row, null in enumerate(are_null)], bool)

    def have_live_cells(self) -> Mask:
        """Return whether each row sets a cell, or an element of a collection, that can have a TTL.

        Static columns count only in static rows, and regular columns only in other rows.
        """
        found = np.zeros(self.count, bool)
        for static in (False, True):
            among = self.are_static if static else ~self.are_static
            for column in self.layout.columns(static=static):
                if self.has(column.name):
                    found |= among & _are_live(self.batch.column(column.name), column)
        return found

    def key_fields(self, *, clustering: bool) -> list[Field]:
        """Return the fields of the partition key, with or without the clustering columns."""
        names = self.layout.partition_key + (self.layout.clustering if clustering else ())
        return [decoding.Field(name, self._present(name)) for name in names]

    def delta_fields(self, *, static: bool) -> list[Field | CollectionDeltas]:
        """Return the fields that make the deltas of static rows, or of all other rows."""
        return [each.of_deltas() for each in self._columns(static=static) if each.is_given]

    def image_fields(self, *, static: bool, whole: bool) -> list[Field]:
        """Return the fields that make the images of static rows, or of all other rows.

        Unless `whole` is True, an image contains only columns for which the log row has a value or
        an explicit null.
        """
        columns = self._columns(static=static)
        return [each.of_images(whole=whole) for each in columns if whole or each.is_given]

    def _columns(self, *, static: bool) -> list[AtomicColumn | CollectionColumn]:
        return [self._column(column) for column in self.layout.columns(static=static)]

    @property
    def is_of_arrow(self) -> bool:
        """Whether the page was made from a batch of the log rather than by `of_values`."""
        return OPERATION in self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.batch.schema.names)

    def _column(self, column: Column) -> AtomicColumn | CollectionColumn:
        values = self._present(column.name)
        deleted = self._present(DELETED_PREFIX + column.name)
        if not is_multi_cell(column.type):
            return AtomicColumn(column.name, values, deleted)
        removed = self._present(REMOVED_PREFIX + column.name)
        return CollectionColumn(column, values, deleted, removed)

    def _present(self, name: str) -> Values | None:
        return self[name] if self.has(name) else None

    def has(self, name: str) -> bool:
        """Return whether any row has a value in the column."""
        if name not in self._names:
            return name in self and _any(self[name])
        column = self.batch.column(name)
        return bool(column.null_count < len(column))

    def _convert(self, name: str) -> Values:
        convert = self.layout.converters.get(name)
        if convert is None or name not in self._names or not self.has(name):
            return [None] * self.count
        return convert(self.batch.column(name))


def _are_live(cells: pa.Array, column: Column) -> Mask:
    """Return which cells set a value; a collection or UDT sets none if it has no elements."""
    found = valid(cells)
    if not is_multi_cell(column.type):
        return found
    if isinstance(column.type, UserType):
        found &= np.any([valid(field) for field in cells.flatten()], axis=0)
    else:
        found &= np.diff(to_numpy(cells.offsets)) > 0
    return found


def _any(values: Values) -> bool:
    return any(value is not None for value in values)
