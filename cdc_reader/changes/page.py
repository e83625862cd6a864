"""The changes of a page of log rows, by number; `Change` looks up its attributes here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from cdc_reader.changes.arrays import Indices
from cdc_reader.changes.columns import Deltas, Image, LogPage
from cdc_reader.changes.delta import Delta, merge
from cdc_reader.changes.operation import MEANINGS, ChangeOperation
from cdc_reader.changes.records import ChangeRows
from cdc_reader.cql.values import FrozenDict

T = TypeVar("T")


class ChangePage:
    """The changes `start` to `end` of `changes`, renumbered from 0.

    Each property has an entry for each change, and is computed for all of them on first use. `log`
    has only the rows of these changes; its first row is row `offset` in `changes`.
    """

    def __init__(
        self, log: LogPage, changes: ChangeRows, start: int, end: int, offset: int = 0
    ) -> None:
        self.log = log
        self._changes = changes
        self._part = slice(start, end)
        self._offset = offset
        self._are_single = log.count == end - start

    @cached_property
    def first_rows(self) -> list[int]:
        """The first log row of each change."""
        return self._rows(self._changes.first)

    @cached_property
    def are_last(self) -> list[bool]:
        """Whether each change is the last of its record."""
        found: list[bool] = self._changes.are_last[self._part].tolist()
        return found

    @cached_property
    def are_complete(self) -> list[bool]:
        """Whether the record of each change was read to its end."""
        found: list[bool] = self._changes.are_complete[self._part].tolist()
        return found

    @cached_property
    def operations(self) -> list[ChangeOperation]:
        """The operation of each change."""
        return [MEANINGS[it] for it in self._at(self._changes.main, self.log.operations)]

    @cached_property
    def partition_keys(self) -> list[FrozenDict[str, Any]]:
        """The partition key of each change, by column."""
        return self._at(self._changes.first, self.log.partition_keys)

    @cached_property
    def keys(self) -> list[FrozenDict[str, Any]]:
        """The key of each change, by column; see `Change.key`."""
        return self._at(self._changes.first, self.log.keys_of_rows)

    @cached_property
    def deltas(self) -> list[Deltas]:
        """The deltas of each change, by column, merged from its rows."""
        deltas = self._at(self._changes.main, self.log.deltas)
        if not self._are_single:
            for number in self._changes.are_split[self._part].nonzero()[0].tolist():
                deltas[number] = _merged([self.log.deltas[row] for row in self.rows(number)])
        return deltas

    @cached_property
    def befores(self) -> list[Image | None]:
        """The preimage of each change; None if the log has none."""
        if not self.log.has_preimages:
            return self._none
        return self._images(self._changes.preimage, self.log.befores)

    @cached_property
    def afters(self) -> list[Image | None]:
        """The postimage of each change; None if the log has none."""
        if not self.log.has_postimages:
            return self._none
        return self._images(self._changes.postimage, self.log.afters)

    def rows(self, number: int) -> tuple[int, ...]:
        """Return the log rows of a change, in order."""
        if self._are_single:
            return (number,)
        order, bounds = self._places
        return tuple(order[bounds[number] : bounds[number + 1]])

    @cached_property
    def _places(self) -> tuple[list[int], list[int]]:
        """Return the log rows, grouped by change, and the index where each group begins."""
        bounds = self._changes.bounds[self._part.start : self._part.stop + 1]
        order = self._changes.order[bounds[0] : bounds[-1]]
        return (order - self._offset).tolist(), (bounds - bounds[0]).tolist()

    @property
    def _none(self) -> list[Any]:
        return [None] * (self._part.stop - self._part.start)

    def _at(self, rows: Indices, cells: list[T]) -> list[T]:
        """Return the cell of each change of this page; `rows` has the row of every change."""
        return cells if self._are_single else [cells[row] for row in self._rows(rows)]

    def _images(self, rows: Indices, images: list[Image | None]) -> list[Image | None]:
        return [None if row < 0 else images[row] for row in self._rows(rows)]

    def _rows(self, rows: Indices) -> list[int]:
        """Return the row in `log` of each change of this page; negative if it has none."""
        found: list[int] = (rows[self._part] - self._offset).tolist()
        return found


def _merged(parts: Sequence[Mapping[str, Delta]]) -> Deltas:
    merged: dict[str, Delta] = {}
    for part in parts:
        for name, delta in part.items():
            merged[name] = merge(merged.get(name), delta)
    return FrozenDict(merged)
