"""What some log rows say of one column of the base table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

from attrs import frozen

from cdc_reader import kernel
from cdc_reader.cql_type import SetType, UserType
from cdc_reader.delta import DELETED, CollectionDelta, Delta, Set
from cdc_reader.schema import Column
from cdc_reader.value import FrozenDict

Deltas = FrozenDict[str, Delta]
Values = list[Any]
"""A log column's values by row, null as None. Where all of them are null there is no list."""
Choice = Sequence[bool]
"""For each row, whether it is one of those meant."""
_NOTHING = (None, None, None)


@frozen
class AtomicCells:
    """A column of one cell a row."""

    name: str
    values: Values | None
    deleted: Values | None

    def part(self, place: slice) -> AtomicCells:
        """Those of some of the rows."""
        return AtomicCells(self.name, _part(self.values, place), _part(self.deleted, place))

    def put(self, deltas: Sequence[Deltas], rows: Choice) -> None:
        """Put what delta rows did to the column among all they did, each in its place."""
        if (values := self.values) is not None:
            told = [row and value is not None for row, value in zip(rows, values, strict=True)]
            made = kernel.instances(Set, sum(told), compress(values, told))
            kernel.put_all(compress(deltas, told), self.name, made)
        if (deleted := self.deleted) is not None:
            for mapping, row, is_deleted in zip(deltas, rows, deleted, strict=True):
                if row and is_deleted:
                    dict.__setitem__(mapping, self.name, DELETED)  # frozen once it is made

    def shown(self, rows: Choice) -> Values:
        """What image rows show, by row; None for null, and for what is not shown."""
        return [None] * len(rows) if self.values is None else self.values


@frozen
class MultiCells:
    """A column of a cell an element: a non-frozen collection or user-defined type."""

    name: str
    values: Values | None
    deleted: Values | None
    removed: Values | None
    column: Column

    def part(self, place: slice) -> MultiCells:
        """Those of some of the rows."""
        values, deleted, removed = (
            _part(column, place) for column in (self.values, self.deleted, self.removed)
        )
        return MultiCells(self.name, values, deleted, removed, self.column)

    def put(self, deltas: Sequence[Deltas], rows: Choice) -> None:
        """Put what delta rows did to the column among all they did, each in its place."""
        columns = self.values, self.deleted, self.removed
        if columns == _NOTHING:
            return
        nulls = [None] * len(deltas)
        cells = zip(*(nulls if column is None else column for column in columns), strict=True)
        for mapping, cell in compress(zip(deltas, cells, strict=True), rows):
            if cell != _NOTHING and (delta := self._delta(*cell)) is not None:
                dict.__setitem__(mapping, self.name, delta)  # frozen once it is made

    def _delta(self, value: Any, overwritten: bool | None, removed: Any) -> Delta | None:
        """The logged value of a user-defined type has nulls for fields that were left alone."""
        if value is None and removed is None:
            return DELETED if overwritten else None
        added, gone = self._added(value), self._removed(removed)
        if overwritten and not added and not gone:
            return DELETED
        return CollectionDelta(bool(overwritten), added, gone)

    def shown(self, rows: Choice) -> Values:
        """What image rows show, by row; None for null, and for what is not shown."""
        if self.values is None:
            return [None] * len(rows)
        return [self._shown(it) if row else None for row, it in zip(rows, self.values, strict=True)]

    def _shown(self, value: Any) -> Any:
        """Null has several spellings in images: an empty collection, a type of null fields."""
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
        """A user-defined type's fields are removed by their places in it."""
        if removed and isinstance(self.column.type, UserType):
            fields = self.column.type.fields
            return frozenset(fields[i][0] if i < len(fields) else f"[{i}]" for i in removed)
        return removed or frozenset()


def _part(values: Values | None, place: slice) -> Values | None:
    return None if values is None else values[place]


Cells = AtomicCells | MultiCells


def put_images(cells: Cells, images: Sequence[Any], rows: Choice, *, whole: bool) -> None:
    """Put what image rows show of a column into their images, each in its place; into those that
    are not whole, only what is told: a value, or that there is none.
    """
    shown = cells.shown(rows)
    if not whole:
        facts = zip(rows, shown, cells.deleted or [None] * len(rows), strict=True)
        rows = [row and (it is not None or null is True) for row, it, null in facts]
    kernel.put_all(compress(images, rows), cells.name, compress(shown, rows))
