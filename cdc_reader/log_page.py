"""Rows of a log as columns of Python values, each column converted when it is first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, Protocol

import pyarrow as pa
from attrs import frozen

from cdc_reader.cql_type import SetType, UserType, is_multi_cell
from cdc_reader.delta import DELETED, CollectionDelta, Delta, Set
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

Values = list[Any]


class Cells(Protocol):
    """What a page says of one column of the base table."""

    @property
    def name(self) -> str: ...

    def delta(self, row: int) -> Delta | None:
        """What a delta row did to the column; None if nothing."""
        ...

    def value(self, row: int) -> Any:
        """What an image row shows; None for null, and for what is not shown."""
        ...

    def is_deleted(self, row: int) -> bool:
        """Whether the row says that the column is null, or was overwritten."""
        ...

    @property
    def is_silent(self) -> bool:
        """Whether no row of the page says anything of the column."""
        ...


@frozen
class AtomicCells:
    """A column of one cell a row; without values where the page has none."""

    name: str
    values: Values | None
    deleted: Values | None

    def delta(self, row: int) -> Delta | None:
        if self.values is not None and (value := self.values[row]) is not None:
            return Set(value)
        return DELETED if self.is_deleted(row) else None

    def value(self, row: int) -> Any:
        return None if self.values is None else self.values[row]

    def is_deleted(self, row: int) -> bool:
        return self.deleted is not None and self.deleted[row] is True

    @property
    def is_silent(self) -> bool:
        return self.values is None and self.deleted is None


@frozen
class MultiCells:
    """A column of a cell an element: a non-frozen collection or user-defined type."""

    name: str
    values: Values | None
    deleted: Values | None
    removed: Values | None
    column: Column

    def delta(self, row: int) -> Delta | None:
        """The logged value of a user-defined type has nulls for fields that were left alone."""
        value = None if self.values is None else self.values[row]
        removed = None if self.removed is None else self.removed[row]
        overwritten = self.is_deleted(row)
        if value is None and removed is None:
            return DELETED if overwritten else None
        added, gone = self._added(value), self._removed(removed)
        if overwritten and not added and not gone:
            return DELETED
        return CollectionDelta(overwritten, added, gone)

    def value(self, row: int) -> Any:
        """Null has several spellings in images: an empty collection, a type of null fields."""
        value = None if self.values is None else self.values[row]
        is_udt = isinstance(self.column.type, UserType)
        return value if value and (not is_udt or self._added(value)) else None

    def is_deleted(self, row: int) -> bool:
        return self.deleted is not None and self.deleted[row] is True

    @property
    def is_silent(self) -> bool:
        return self.values is None and self.deleted is None and self.removed is None

    def _added(self, value: Any) -> Any:
        if isinstance(self.column.type, UserType):
            fields = (value or {}).items()
            return FrozenDict({name: cell for name, cell in fields if cell is not None})
        if value is None:
            return frozenset() if isinstance(self.column.type, SetType) else FrozenDict()
        return value

    def _removed(self, removed: frozenset[Any] | None) -> frozenset[Any]:
        """A user-defined type's fields are removed by their places in it."""
        if removed and isinstance(self.column.type, UserType):
            fields = self.column.type.fields
            return frozenset(fields[i][0] if i < len(fields) else f"[{i}]" for i in removed)
        return removed or frozenset()


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
    """The columns of some log rows by name; one the log does not have is all null.

    It keeps the batch, and so do all changes made of it.
    """

    def __init__(self, layout: Layout, batch: pa.RecordBatch) -> None:
        super().__init__()
        self.layout = layout
        self._batch = batch
        self._names = frozenset(batch.schema.names)

    @classmethod
    def of_values(cls, layout: Layout, columns: dict[str, Values]) -> LogPage:
        """A page of values that are converted already; columns left out are null."""
        count = len(next(iter(columns.values()), []))
        page = cls(layout, pa.RecordBatch.from_arrays([pa.nulls(count)], names=[""]))
        page.update(columns)
        return page

    def __missing__(self, name: str) -> Values:
        values = self[name] = self._convert(name)
        return values

    def rows(self, rows: Sequence[int]) -> dict[str, Values]:
        """The values of some rows, by column; columns that are null in all of them left out."""
        names = [column.name for column in self.layout.schema.columns]
        found = {name: [self[name][row] for row in rows] for name in names if self._has(name)}
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
    def static_deltas(self) -> list[Cells]:
        """The static columns that any row of the page speaks of."""
        return [cells for cells in self.static_cells if not cells.is_silent]

    @cached_property
    def regular_deltas(self) -> list[Cells]:
        """The columns of other rows that any row of the page speaks of."""
        return [cells for cells in self.regular_cells if not cells.is_silent]

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
        return self[name] if self._has(name) else None

    def _has(self, name: str) -> bool:
        """Whether any row has a value in the column."""
        if name not in self._names:
            return name in self and _any(self[name])
        column = self._batch.column(name)
        return bool(column.null_count < len(column))

    def _convert(self, name: str) -> Values:
        convert: Convert | None = self.layout.converters.get(name)
        if convert is None or name not in self._names or not self._has(name):
            return [None] * self._batch.num_rows
        return convert(self._batch.column(name))


def _any(values: Values) -> bool:
    return any(value is not None for value in values)
