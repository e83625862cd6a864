"""Compares the rows of two tables in constant memory, however many rows there are.

Both servers send the rows of a token range in the same order: by token, then by clustering key.
Each row before the first key that both tables have is therefore in only one of the tables. Equal
rows are skipped many at a time, as Arrow arrays. Only rows that differ become Python objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import define, evolve, field, frozen

from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import Native
from cdc_reader.cql.values import FrozenDict, converter
from cdc_reader.decoding.arrow_type import ARROW
from cdc_reader.reading.ports import TOKEN

_LOOK_AHEAD = 16
"""The number of rows that the first search for a common key covers; further searches cover more."""
_FLOATS = {"float": pa.int32(), "double": pa.int64()}
_BITS = evolve(ARROW, native=lambda cql_type: _FLOATS.get(cql_type.name) or ARROW(cql_type))
"""Arrow types for comparison: floats, even nested ones, are compared by their bits, so NaN equals
itself, and 0.0 does not equal -0.0."""


class Kind(Enum):
    """Kinds of differences."""

    MISSING = "missing"
    """Only the source has the row."""
    EXTRA = "extra"
    """Only the target has the row."""
    CHANGED = "changed"
    """Both tables have the row, with different values."""


@frozen
class Difference:
    """A row that differs: its key and, if both tables have it, the columns that differ."""

    kind: Kind
    key: Mapping[str, Any]
    columns: tuple[str, ...] = ()


@define
class Counts:
    """The numbers of rows in the tables, and of rows that differ, by kind."""

    source: int = 0
    target: int = 0
    differing: Counter[Kind] = field(factory=Counter)

    def add(self, other: Counts) -> None:
        """Add other counts to these."""
        self.source += other.source
        self.target += other.target
        self.differing.update(other.differing)


class RowComparison:
    """Compares the rows of one token range.

    `key` lists the columns of the primary key, and `values` lists the other columns to compare. The
    rows of both tables have these columns, with equal types, and the column `TOKEN`. `counts` is
    complete when `differences` has yielded all rows that differ.
    """

    def __init__(
        self,
        source: Iterator[pa.RecordBatch],
        target: Iterator[pa.RecordBatch],
        key: Sequence[Column],
        values: Sequence[Column],
    ) -> None:
        self.counts = Counts()
        self._key = {column.name: converter(column.type) for column in key}
        self._values = {column.name: converter(column.type) for column in values}
        self._bits = [_BITS(each.type) for each in (Column(TOKEN, Native("bigint")), *key, *values)]
        names = [TOKEN, *self._key, *self._values]
        self._source, self._target = _Rows(source, names), _Rows(target, names)

    def differences(self) -> Iterator[Difference]:
        """Yield the rows that differ, in the tables' order."""
        source, target = self._source, self._target
        while source.has(1) and target.has(1):
            equal = _equal_rows(*(_as_types(rows.rows, self._bits) for rows in (source, target)))
            self._passed(equal, equal)
            if source.count and target.count:
                yield from self._first_difference()
        for rows, kind in ((source, Kind.MISSING), (target, Kind.EXTRA)):
            while rows.has(1):
                yield from self._alone(kind, rows.count)

    def _first_difference(self) -> Iterator[Difference]:
        """Yield the rows before the first common row, or that row if it comes first and differs."""
        source, target = self._source.tokens[0], self._target.tokens[0]
        if source < target:
            yield from self._alone(Kind.MISSING, self._source.before(target))
        elif target < source:
            yield from self._alone(Kind.EXTRA, self._target.before(source))
        else:
            missing, extra = self._before_common(source)
            yield from self._alone(Kind.MISSING, missing)
            yield from self._alone(Kind.EXTRA, extra)
            if not missing and not extra:
                yield from self._changed()

    def _before_common(self, token: int) -> tuple[int, int]:
        """Return how many rows with this token each table has before the first common row."""
        ahead = _LOOK_AHEAD
        while True:
            mine, theirs = (rows.first(token, ahead) for rows in (self._source, self._target))
            places = {key: at for at, key in enumerate(map(repr, self._keys(theirs)))}
            for at, key in enumerate(map(repr, self._keys(mine))):
                if key in places:
                    return at, places[key]
            if mine.num_rows < ahead and theirs.num_rows < ahead:
                return int(mine.num_rows), int(theirs.num_rows)
            ahead *= 4

    def _changed(self) -> Iterator[Difference]:
        """Yield the first row, which both tables have, if its values differ."""
        mine, theirs = self._source.rows.slice(0, 1), self._target.rows.slice(0, 1)
        columns = tuple(
            name
            for name, convert in self._values.items()
            if repr([*convert(mine.column(name))]) != repr([*convert(theirs.column(name))])
        )
        if columns:
            self.counts.differing[Kind.CHANGED] += 1
            [key] = self._keys(mine)
            yield Difference(Kind.CHANGED, key, columns)
        self._passed(1, 1)

    def _alone(self, kind: Kind, count: int) -> Iterator[Difference]:
        """Yield the first `count` rows of one table, which the other table does not have."""
        rows = self._source if kind is Kind.MISSING else self._target
        self.counts.differing[kind] += count
        for at in range(0, count, _LOOK_AHEAD):
            for key in self._keys(rows.rows.slice(at, min(_LOOK_AHEAD, count - at))):
                yield Difference(kind, key)
        self._passed(count if rows is self._source else 0, count if rows is self._target else 0)

    def _passed(self, source: int, target: int) -> None:
        self.counts.source += source
        self.counts.target += target
        self._source.drop(source)
        self._target.drop(target)

    def _keys(self, rows: pa.RecordBatch) -> Iterator[Mapping[str, Any]]:
        """Yield the key of each row by column, without the null key columns of static rows."""
        columns = [convert(rows.column(name)) for name, convert in self._key.items()]
        for cells in zip(*columns, strict=True):
            named = zip(self._key, cells, strict=True)
            yield FrozenDict({name: cell for name, cell in named if cell is not None})


class _Rows:
    """The rows of one table that have been read but not yet compared."""

    def __init__(self, batches: Iterator[pa.RecordBatch], names: Sequence[str]) -> None:
        self._batches = batches
        self._names = names
        self.rows = pa.RecordBatch.from_pylist([], pa.schema([]))

    @property
    def count(self) -> int:
        found: int = self.rows.num_rows
        return found

    @property
    def tokens(self) -> Any:
        return self.rows.column(TOKEN).to_numpy()

    def has(self, count: int) -> bool:
        """Read until there are `count` rows; return False if the table has fewer."""
        read = [self.rows] if self.count else []
        missing = count - self.count
        while missing > 0 and (batch := next(self._batches, None)) is not None:
            read.append(batch.select(self._names))
            missing -= batch.num_rows
        if len(read) > 1 or (read and not self.count):
            self.rows = pa.concat_batches(read)
        return missing <= 0

    def before(self, token: int) -> int:
        """Return how many of the rows read have tokens less than `token`."""
        return int(np.searchsorted(self.tokens, token))

    def first(self, token: int, count: int) -> pa.RecordBatch:
        """Return the first rows with this token, at most `count` of them."""
        self.has(count)
        of_token = int(np.searchsorted(self.tokens, token, side="right")) if self.count else 0
        return self.rows.slice(0, min(count, of_token))

    def drop(self, count: int) -> None:
        self.rows = self.rows.slice(count)


def _equal_rows(one: pa.RecordBatch, other: pa.RecordBatch) -> int:
    """Return the number of equal rows at the beginning of both batches."""
    count: int = min(one.num_rows, other.num_rows)
    if one.slice(0, count).equals(other.slice(0, count)):
        return count
    equal = 0
    while count > 1:
        half = count // 2
        if one.slice(equal, half).equals(other.slice(equal, half)):
            equal, count = equal + half, count - half
        else:
            count = half
    return equal


def _as_types(rows: pa.RecordBatch, types: Sequence[pa.DataType]) -> pa.RecordBatch:
    """Return the rows with their bytes reinterpreted as `types`, and without column names."""
    columns = [column.view(to) for column, to in zip(rows.columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=[str(n) for n in range(len(columns))])
