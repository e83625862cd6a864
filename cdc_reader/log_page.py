"""Rows of a log as columns of Python values, each column converted when it is first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import compress
from typing import Any

import pyarrow as pa

from cdc_reader import kernel
from cdc_reader.cells import AtomicCells, Cells, Choice, Deltas, MultiCells, Values, put_images
from cdc_reader.cql_type import is_multi_cell
from cdc_reader.operation import Operation
from cdc_reader.schema import Column, ColumnKind, LogSchema
from cdc_reader.value import Convert, FrozenDict, converter

STREAM_ID = "cdc$stream_id"
TIME = "cdc$time"
BATCH_SEQ_NO = "cdc$batch_seq_no"
OPERATION = "cdc$operation"
TTL = "cdc$ttl"
END_OF_BATCH = "cdc$end_of_batch"
DELETED_PREFIX = "cdc$deleted_"
REMOVED_PREFIX = "cdc$deleted_elements_"

IMAGES = frozenset([Operation.PREIMAGE, Operation.POSTIMAGE])
RANGE_STARTS = (Operation.RANGE_START_INCLUSIVE, Operation.RANGE_START_EXCLUSIVE)
RANGE_ENDS = (Operation.RANGE_END_INCLUSIVE, Operation.RANGE_END_EXCLUSIVE)
RANGE_BOUNDS = frozenset(RANGE_STARTS + RANGE_ENDS)


Image = FrozenDict[str, Any]
"""Columns of a row by name, as they were or became; null is None."""


class Layout:
    """Which columns of a log speak of which columns of its base table."""

    def __init__(self, schema: LogSchema) -> None:
        self.schema = schema
        self.partition_key = _names(schema, ColumnKind.PARTITION_KEY)
        self.clustering = _names(schema, ColumnKind.CLUSTERING)
        self.converters = {column.name: converter(column.type) for column in schema.columns}
        # Parsed only where somebody looks: as text it tells one record from the next.
        self.converters[TIME] = pa.Array.to_pylist

    def columns(self, *, static: bool) -> list[Column]:
        """The base columns of a static row, or of any other, that the log has."""
        kind = ColumnKind.STATIC if static else ColumnKind.REGULAR
        known = self.converters
        return [c for c in self.schema.base.columns if c.kind is kind and c.name in known]


def _names(schema: LogSchema, kind: ColumnKind) -> tuple[str, ...]:
    return tuple(column.name for column in schema.base.columns if column.kind is kind)


layout_of = lru_cache(maxsize=64)(Layout)
"""The layout of a schema, made once."""


class LogPage(dict[str, Values]):
    """The columns of `count` log rows by name; one the log does not have is all null.

    It keeps the batch, and so do all changes made of it. `late` rows came to light behind
    others of their stream. What `are_last` and `are_complete` tell of the first row of a change
    is told of the change: whether it is the last of its record, and whether that is complete.
    """

    def __init__(self, layout: Layout, batch: pa.RecordBatch, *, late: bool = False) -> None:
        super().__init__()
        self.layout = layout
        self.late = late
        self.count = batch.num_rows
        self.are_last = [True] * self.count
        self.are_complete = [True] * self.count
        self.batch = batch

    @classmethod
    def of_values(
        cls, layout: Layout, columns: dict[str, Values], *, late: bool = False
    ) -> LogPage:
        """A page of values that are converted already; columns left out are null."""
        count = len(next(iter(columns.values()), []))
        page = cls(layout, pa.RecordBatch.from_arrays([pa.nulls(count)], names=[""]), late=late)
        page.update(columns)
        return page

    def __missing__(self, name: str) -> Values:
        values = self[name] = self._convert(name)
        return values

    def rows(self, rows: Sequence[int]) -> dict[str, Values]:
        """The values of some rows, by column; columns that are null in all of them left out."""
        names = [column.name for column in self.layout.schema.columns]
        found = {name: [self[name][row] for row in rows] for name in names if self.has(name)}
        return {name: cells for name, cells in found.items() if _any(cells)}

    @cached_property
    def static_cells(self) -> list[Cells]:
        """The static columns."""
        return self._cells(static=True)

    @cached_property
    def regular_cells(self) -> list[Cells]:
        """The columns of other rows."""
        return self._cells(static=False)

    @cached_property
    def operations(self) -> list[Operation]:
        """What each row says happened."""
        codes = self[OPERATION]
        named = {code: Operation(code) for code in set(codes)}
        return [named[code] for code in codes]

    @cached_property
    def has_preimages(self) -> bool:
        """Whether any row is one."""
        return Operation.PREIMAGE in self.operations

    @cached_property
    def has_postimages(self) -> bool:
        """Whether any row is one."""
        return Operation.POSTIMAGE in self.operations

    @cached_property
    def are_static(self) -> list[bool]:
        """For each row: whether no clustering column is known, as of a static row."""
        if not self.layout.clustering:
            return [False] * self.count
        return [value is None for value in self[self.layout.clustering[0]]]

    @cached_property
    def partition_keys(self) -> list[FrozenDict[str, Any]]:
        """Each row's partition key, by column."""
        return self._keys()

    @cached_property
    def keys_of_rows(self) -> list[FrozenDict[str, Any]]:
        """Each row's partition key and, if it is of one base row, its clustering columns."""
        if not self.layout.clustering:
            return self.partition_keys
        keys, of_rows = self._keys(), self._chosen(RANGE_BOUNDS, static=False)
        for name in self.layout.clustering:
            kernel.put_all(compress(keys, of_rows), name, compress(self[name], of_rows))
        return keys

    @cached_property
    def deltas(self) -> list[Deltas]:
        """What each row did to the columns; nothing if it is an image."""
        nothing: Deltas = FrozenDict()
        found = [nothing if it in IMAGES else FrozenDict() for it in self.operations]
        for static, columns in ((True, self.static_cells), (False, self.regular_cells)):
            rows = self._chosen(IMAGES, static=static) if columns else []
            for cells in columns:
                cells.put(found, rows)
        return found

    @cached_property
    def befores(self) -> list[Image | None]:
        """What each preimage shows; None for other rows."""
        return self._images(Operation.PREIMAGE, whole=False)

    @cached_property
    def afters(self) -> list[Image | None]:
        """What each postimage shows, null where it shows nothing; None for other rows."""
        return self._images(Operation.POSTIMAGE, whole=True)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.batch.schema.names)

    def _images(self, kind: Operation, *, whole: bool) -> list[Image | None]:
        of_kind = [it is kind for it in self.operations]
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

    def _chosen(self, without: frozenset[Operation], *, static: bool) -> Choice:
        """The rows that are like static ones, or are not, without those of some operations."""
        if not any(self.are_static) and without.isdisjoint(self.operations):
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
        """Whether any row has a value in the column."""
        if name not in self._names:
            return name in self and _any(self[name])
        column = self.batch.column(name)
        return bool(column.null_count < len(column))

    def _convert(self, name: str) -> Values:
        convert: Convert | None = self.layout.converters.get(name)
        if convert is None or name not in self._names or not self.has(name):
            return [None] * self.count
        return convert(self.batch.column(name))


class Stretch(LogPage):
    """Rows of a page that follow each other.

    What is made of rows is the stretch's, not the page's: it goes when the changes of these few
    rows are let go. A whole page's would live on for long enough to keep the garbage collector
    busy, which then takes longer than all else.
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
