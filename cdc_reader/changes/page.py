"""The changes of a page of log rows, by number; `Change` looks up its attributes here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

import numpy as np

from cdc_reader import decoding
from cdc_reader._arrow import Mask, to_numpy
from cdc_reader.changes.arrays import NONE, Indices
from cdc_reader.changes.columns import Deltas, Image, LogPage
from cdc_reader.changes.delta import Delta, merge
from cdc_reader.changes.hashing import Hashes, combined, hashes
from cdc_reader.changes.operation import MEANINGS, ChangeOperation
from cdc_reader.changes.records import IMAGES, RANGE_BOUNDS, ChangeRows
from cdc_reader.cql.schema import TIME, Operation
from cdc_reader.cql.values import FrozenDict

T_co = TypeVar("T_co", covariant=True)

_IMAGE = 2
"""The kind of images, which have no deltas; regular rows are kind 0, and static rows kind 1."""


class Items(Protocol[T_co]):
    """An item for each change of a page, or for each of its log rows."""

    def __getitem__(self, index: int, /) -> T_co: ...


class ChangePage:
    """The changes of a page. Each property contains one item for each change.

    Items that are mappings are made anew on each access, and belong to the change that requested
    them.
    """

    def __init__(self, log: LogPage, changes: ChangeRows) -> None:
        self.log = log
        self.change_rows = changes

    @cached_property
    def first_rows(self) -> Sequence[int]:
        """The first log row of each change."""
        return (
            range(self.log.count) if self.change_rows.are_single else _list(self.change_rows.first)
        )

    @cached_property
    def are_last(self) -> list[bool]:
        """Whether each change is the last of its record."""
        return _list(self.change_rows.are_last)

    @cached_property
    def are_complete(self) -> list[bool]:
        """Whether the record of each change was read to its end."""
        return _list(self.change_rows.are_complete)

    @cached_property
    def operations(self) -> list[ChangeOperation]:
        """The operation of each change."""
        codes = _list(self.change_rows.operations[self.change_rows.main])
        named = {code: MEANINGS[Operation(code)] for code in set(codes)}
        return [named[code] for code in codes]

    @cached_property
    def partition_keys(self) -> Items[FrozenDict[str, Any]]:
        """The partition key of each change, by column."""
        fields = self.log.key_fields(clustering=False)
        return self._of_first_rows(decoding.Mappings(bytes(self.log.count), [fields]))

    @cached_property
    def keys(self) -> Items[FrozenDict[str, Any]]:
        """The key of each change, by column; see `Change.key`."""
        are_rows = ~(self.log.are_static | self.change_rows.having(RANGE_BOUNDS))
        fields = [self.log.key_fields(clustering=has_clustering) for has_clustering in _BOTH]
        return self._of_first_rows(decoding.Mappings(are_rows.tobytes(), fields))

    @cached_property
    def deltas(self) -> Items[Deltas]:
        """The deltas of each change, by column, merged from its rows."""
        if self.change_rows.are_single:
            return self.deltas_of_rows
        main = np.where(self.change_rows.are_split, NONE, self.change_rows.main)
        merged = partial(_merged, self.deltas_of_rows, *self._places)
        return self.deltas_of_rows.picked(_list(main), merged)

    @cached_property
    def deltas_of_rows(self) -> decoding.Mappings:
        """The deltas of each log row, by column; empty for images."""
        kinds = np.where(self.change_rows.having(IMAGES), _IMAGE, self.log.are_static)
        fields = [self.log.delta_fields(static=static) for static in _BOTH]
        return decoding.Mappings(kinds.astype(np.uint8).tobytes(), [*fields, []])

    @cached_property
    def befores(self) -> Items[Image | None]:
        """The preimage of each change, or None if the change has no preimage."""
        return self._images(self.change_rows.preimage, whole=False)

    @cached_property
    def afters(self) -> Items[Image | None]:
        """The postimage of each change, or None if the change has no postimage."""
        return self._images(self.change_rows.postimage, whole=True)

    @property
    def timestamps(self) -> Indices:
        """The write timestamp of each change, in µs since 1970."""
        micros: Indices = to_numpy(decoding.micros_of(self.log.batch.column(TIME)))
        return micros[self.change_rows.first]

    @cached_property
    def partition_hashes(self) -> Hashes:
        """For each change, a hash of its table and its partition key, the same in all pages."""
        table = np.array([hash(self.log.layout.schema.base.name)], np.int64).view(np.uint64)
        found = np.repeat(table, self.log.count)
        for name in self.log.layout.partition_key:
            found = combined(found, hashes(self.log.batch.column(name)))
        return found if self.change_rows.are_single else found[self.change_rows.first]

    def rows(self, number: int) -> list[int]:
        """Return the log rows of a change, in order."""
        return [number] if self.change_rows.are_single else _rows(*self._places, number)

    @cached_property
    def _places(self) -> tuple[list[int], list[int]]:
        """The log rows, grouped by change, and the index at which each group begins."""
        return _list(self.change_rows.order), _list(self.change_rows.bounds)

    def _of_first_rows(self, mappings: decoding.Mappings) -> decoding.Mappings:
        """Return the mapping of the first row of each change."""
        are_single = self.change_rows.are_single
        return mappings if are_single else mappings.picked(_list(self.change_rows.first))

    def _images(self, rows: Indices, *, whole: bool) -> Items[Image | None]:
        if (rows == NONE).all():
            return [None] * len(rows)
        fields = [self.log.image_fields(static=static, whole=whole) for static in _BOTH]
        return decoding.Mappings(self.log.are_static.tobytes(), fields).picked(_list(rows))


def _merged(deltas: Items[Deltas], order: list[int], bounds: list[int], number: int) -> Deltas:
    """Return the deltas of a change, merged from the deltas of its rows."""
    merged: dict[str, Delta] = {}
    for row in _rows(order, bounds, number):
        for name, delta in deltas[row].items():
            merged[name] = merge(merged.get(name), delta)
    return FrozenDict(merged)


def _rows(order: list[int], bounds: list[int], number: int) -> list[int]:
    return order[bounds[number] : bounds[number + 1]]


def _list(array: Indices | Mask) -> list[Any]:
    found: list[Any] = array.tolist()
    return found


_BOTH = (False, True)
