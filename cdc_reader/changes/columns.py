"""A page of log rows as columns of Python values, converted on first use."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache
from itertools import compress
from typing import Any

import pyarrow as pa
from attrs import frozen

from cdc_reader import decoding as kernel
from cdc_reader.changes.delta import DELETED, CollectionDelta, Delta, Set
from cdc_reader.changes.records import AFTER, IMAGES, PREIMAGES, RANGE_BOUNDS
from cdc_reader.cql.schema import (
    DELETED_PREFIX,
    OPERATION,
    REMOVED_PREFIX,
    TIME,
    Column,
    ColumnKind,
    LogSchema,
    Operation,
)
from cdc_reader.cql.types import SetType, UserType, is_multi_cell
from cdc_reader.cql.values import Convert, FrozenDict, converter
from cdc_reader.reading.ports import ttl_of, written_of

Deltas = FrozenDict[str, Delta]

Values = list[Any]
"""A log column's values by row; null is None."""

Choice = Sequence[bool]
"""For each row, whether it is selected."""

_NOTHING = (None, None, None)


@frozen
class AtomicCells:
    """A column with one cell per row. `values` or `deleted` is None if null in all rows."""

    name: str
    values: Values | None
    deleted: Values | None

    def part(self, place: slice) -> AtomicCells:
        """Return the cells of the given rows."""
        return AtomicCells(self.name, _part(self.values, place), _part(self.deleted, place))

    def put(self, deltas: Sequence[Deltas], rows: Choice) -> None:
        """Put the column's delta of each selected row into that row's `deltas`."""
        if (values := self.values) is not None:
            is_set = [row and value is not None for row, value in zip(rows, values, strict=True)]
            made = kernel.instances(Set, sum(is_set), compress(values, is_set))
            kernel.put_all(compress(deltas, is_set), self.name, made)
        if (deleted := self.deleted) is not None:
            for mapping, row, is_deleted in zip(deltas, rows, deleted, strict=True):
                if row and is_deleted:
                    dict.__setitem__(mapping, self.name, DELETED)  # read-only for others

    def shown(self, rows: Choice) -> Values:
        """Return the value of each image row; None for null, and for values not shown."""
        return [None] * len(rows) if self.values is None else self.values


@frozen
class MultiCells:
    """A column with one cell per element: a non-frozen collection or user-defined type.

    `values`, `deleted` or `removed` is None if null in all rows.
    """

    name: str
    values: Values | None
    deleted: Values | None
    removed: Values | None
    column: Column

    def part(self, place: slice) -> MultiCells:
        """Return the cells of the given rows."""
        values, deleted, removed = (
            _part(column, place) for column in (self.values, self.deleted, self.removed)
        )
        return MultiCells(self.name, values, deleted, removed, self.column)

    def put(self, deltas: Sequence[Deltas], rows: Choice) -> None:
        """Put the column's delta of each selected row into that row's `deltas`."""
        columns = self.values, self.deleted, self.removed
        if columns == _NOTHING:
            return
        nulls = [None] * len(deltas)
        cells = zip(*(nulls if column is None else column for column in columns), strict=True)
        for mapping, cell in compress(zip(deltas, cells, strict=True), rows):
            if cell != _NOTHING and (delta := self._delta(*cell)) is not None:
                dict.__setitem__(mapping, self.name, delta)  # read-only for others

    def _delta(self, value: Any, overwritten: bool | None, removed: Any) -> Delta | None:
        """Return the delta of one row; None if the column was left unchanged.

        In a logged user-defined type, null fields were left unchanged.
        """
        if value is None and removed is None:
            return DELETED if overwritten else None
        added, gone = self._added(value), self._removed(removed)
        if overwritten and not added and not gone:
            return DELETED
        return CollectionDelta(bool(overwritten), added, gone)

    def shown(self, rows: Choice) -> Values:
        """Return the value of each image row; None for null, and for values not shown."""
        if self.values is None:
            return [None] * len(rows)
        return [self._shown(it) if row else None for row, it in zip(rows, self.values, strict=True)]

    def _shown(self, value: Any) -> Any:
        """Return an image's value; an empty collection, or a UDT with only null fields, is null."""
        is_udt = isinstance(self.column.type, UserType)
        return value if value and (not is_udt or self._added(value)) else None

    def _added(self, value: Any) -> Any:
        if isinstance(self.column.type, UserType):
            fields = (value or {}).items()
            return FrozenDict({name: cell for name, cell in fields if cell is not None})
        if value is None:
            return frozenset() if isinstance(self.column.type, SetType) else FrozenDict()
        return value

    def _removed(self, removed: frozenset[Any] | None) -> frozenset[Any]:
        """Return the removed elements; a user-defined type logs them as indices of its fields."""
        if removed and isinstance(self.column.type, UserType):
            fields = self.column.type.fields
            return frozenset(fields[i][0] if i < len(fields) else f"[{i}]" for i in removed)
        return removed or frozenset()


def _part(values: Values | None, place: slice) -> Values | None:
    return None if values is None else values[place]


Cells = AtomicCells | MultiCells


def put_images(cells: Cells, images: Sequence[Any], rows: Choice, *, whole: bool) -> None:
    """Put a column into the images of the selected image rows.

    If images are not `whole`, put only what the row shows: a value, or an explicit null.
    """
    shown = cells.shown(rows)
    if not whole:
        facts = zip(rows, shown, cells.deleted or [None] * len(rows), strict=True)
        rows = [row and (it is not None or null is True) for row, it, null in facts]
    kernel.put_all(compress(images, rows), cells.name, compress(shown, rows))


Image = FrozenDict[str, Any]
"""A row's columns by name, as they were before or after the change; null is None."""


class Layout:
    """The mapping from the columns of a log to those of its base table."""

    def __init__(self, schema: LogSchema) -> None:
        self.schema = schema
        self.partition_key = tuple(column.name for column in schema.base.partition_key)
        self.clustering = tuple(column.name for column in schema.base.clustering)
        self.converters = {column.name: converter(column.type) for column in schema.columns}
        # Kept as text, which is enough to distinguish records, and parsed only on demand.
        self.converters[TIME] = pa.Array.to_pylist
        self.of_cells = tuple(
            of(column.name) for of in (ttl_of, written_of) for column in schema.base.columns
        )
        """The columns of remaining TTLs and of write times, which rows of a snapshot may have."""
        self.converters.update(dict.fromkeys(self.of_cells, pa.Array.to_pylist))

    def columns(self, *, static: bool) -> list[Column]:
        """Return the static, or the regular, base columns that the log has."""
        kind = ColumnKind.STATIC if static else ColumnKind.REGULAR
        known = self.converters
        return [column for column in self.schema.base.of_kind(kind) if column.name in known]


layout_of = lru_cache(maxsize=64)(Layout)
"""Return the layout of a schema; cached."""


class LogPage(dict[str, Values]):
    """The columns of `count` log rows by name; a column that the log lacks is all null.

    The page keeps the batch in memory, and so does every change made from it. `late` rows are
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
        cls, layout: Layout, columns: dict[str, Values], *, late: bool = False
    ) -> LogPage:
        """Create a page from converted values; missing columns are null."""
        count = len(next(iter(columns.values()), []))
        page = cls(layout, pa.RecordBatch.from_arrays([pa.nulls(count)], names=[""]), late=late)
        page.update(columns)
        return page

    def __missing__(self, name: str) -> Values:
        values = self[name] = self._convert(name)
        return values

    def rows(self, rows: Sequence[int]) -> dict[str, Values]:
        """Return the values of the given rows, by column, without columns that are all null."""
        names = [*(column.name for column in self.layout.schema.columns), *self.layout.of_cells]
        found = {name: [self[name][row] for row in rows] for name in names if self.has(name)}
        return {name: cells for name, cells in found.items() if _any(cells)}

    @cached_property
    def static_cells(self) -> list[Cells]:
        """The static columns."""
        return self._cells(static=True)

    @cached_property
    def regular_cells(self) -> list[Cells]:
        """The regular columns."""
        return self._cells(static=False)

    @cached_property
    def operations(self) -> list[Operation]:
        """The operation of each row."""
        codes = self[OPERATION]
        named = {code: Operation(code) for code in set(codes)}
        return [named[code] for code in codes]

    @cached_property
    def has_preimages(self) -> bool:
        """Whether any row is a preimage."""
        return any(it in self.operations for it in PREIMAGES)

    @cached_property
    def has_postimages(self) -> bool:
        """Whether any row shows a base row after the change."""
        return any(it in self.operations for it in AFTER)

    @cached_property
    def are_static(self) -> list[bool]:
        """For each row, whether it lacks a clustering key, as static rows do."""
        if not self.layout.clustering:
            return [False] * self.count
        return [value is None for value in self[self.layout.clustering[0]]]

    @cached_property
    def partition_keys(self) -> list[FrozenDict[str, Any]]:
        """Each row's partition key, by column."""
        return self._keys()

    @cached_property
    def keys_of_rows(self) -> list[FrozenDict[str, Any]]:
        """Each row's partition key and, if it belongs to one base row, its clustering columns."""
        if not self.layout.clustering:
            return self.partition_keys
        keys, of_rows = self._keys(), self._chosen(RANGE_BOUNDS, static=False)
        for name in self.layout.clustering:
            kernel.put_all(compress(keys, of_rows), name, compress(self[name], of_rows))
        return keys

    @cached_property
    def deltas(self) -> list[Deltas]:
        """The deltas of each row, by column; empty for images."""
        nothing: Deltas = FrozenDict()
        found = [nothing if it in IMAGES else FrozenDict() for it in self.operations]
        for static, columns in ((True, self.static_cells), (False, self.regular_cells)):
            rows = self._chosen(IMAGES, static=static) if columns else []
            for cells in columns:
                cells.put(found, rows)
        return found

    @cached_property
    def befores(self) -> list[Image | None]:
        """The image of each preimage row; None for other rows."""
        return self._images(PREIMAGES, whole=False)

    @cached_property
    def afters(self) -> list[Image | None]:
        """The image of each row that shows a base row after a change; missing columns are null."""
        return self._images(AFTER, whole=True)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.batch.schema.names)

    def _images(self, kinds: Collection[Operation], *, whole: bool) -> list[Image | None]:
        of_kind = [it in kinds for it in self.operations]
        images: list[Image | None] = [FrozenDict() if it else None for it in of_kind]
        for static, columns in ((True, self.static_cells), (False, self.regular_cells)):
            facts = zip(of_kind, self.are_static, strict=True) if columns else ()
            rows = [it and is_static is static for it, is_static in facts]
            for cells in columns:
                put_images(cells, images, rows, whole=whole)
        return images

    def _keys(self) -> list[FrozenDict[str, Any]]:
        keys: list[FrozenDict[str, Any]] = [FrozenDict() for _ in self.operations]
        for name in self.layout.partition_key:
            kernel.put_all(keys, name, self[name])
        return keys

    def _chosen(self, without: Collection[Operation], *, static: bool) -> Choice:
        """Select static rows, or all others, except rows with the operations in `without`."""
        if not any(self.are_static) and not any(it in self.operations for it in without):
            return [not static] * self.count
        facts = zip(self.operations, self.are_static, strict=True)
        return [is_static is static and it not in without for it, is_static in facts]

    def _cells(self, *, static: bool) -> list[Cells]:
        return [self._column(column) for column in self.layout.columns(static=static)]

    def _column(self, column: Column) -> Cells:
        values = self._present(column.name)
        deleted = self._present(DELETED_PREFIX + column.name)
        if not is_multi_cell(column.type):
            return AtomicCells(column.name, values, deleted)
        removed = self._present(REMOVED_PREFIX + column.name)
        return MultiCells(column.name, values, deleted, removed, column)

    def _present(self, name: str) -> Values | None:
        return self[name] if self.has(name) else None

    def has(self, name: str) -> bool:
        """Return whether any row has a value in the column."""
        if name not in self._names:
            return name in self and _any(self[name])
        column = self.batch.column(name)
        return bool(column.null_count < len(column))

    def _convert(self, name: str) -> Values:
        convert: Convert | None = self.layout.converters.get(name)
        if convert is None or name not in self._names or not self.has(name):
            return [None] * self.count
        return convert(self.batch.column(name))


class PageSlice(LogPage):
    """Consecutive rows of a page.

    Converted values belong to the slice, not the page, so they are freed with the changes of
    these few rows. The values of a whole page would live long enough for the garbage collector to
    scan them, and the scan would take longer than everything else.
    """

    def __init__(self, page: LogPage, start: int, end: int) -> None:
        super().__init__(page.layout, page.batch.slice(start, end - start), late=page.late)
        self._page = page
        self._place = slice(start, end)

    @cached_property
    def operations(self) -> list[Operation]:
        return self._page.operations[self._place]

    @cached_property
    def has_preimages(self) -> bool:
        return self._page.has_preimages

    @cached_property
    def has_postimages(self) -> bool:
        return self._page.has_postimages

    @cached_property
    def are_static(self) -> list[bool]:
        return self._page.are_static[self._place]

    @cached_property
    def static_cells(self) -> list[Cells]:
        return [cells.part(self._place) for cells in self._page.static_cells]

    @cached_property
    def regular_cells(self) -> list[Cells]:
        return [cells.part(self._place) for cells in self._page.regular_cells]

    def has(self, name: str) -> bool:
        return self._page.has(name)

    def _convert(self, name: str) -> Values:
        return self._page[name][self._place]


def _any(values: Values) -> bool:
    return any(value is not None for value in values)
