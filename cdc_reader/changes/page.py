"""The changes of a page of log rows, by number; `Change` looks up its attributes here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa

from cdc_reader import decoding
from cdc_reader._arrow import Mask, filled, to_arrow, to_numpy
from cdc_reader._time import Micros
from cdc_reader.changes.arrays import NONE, Indices
from cdc_reader.changes.columns import Deltas, Image, LogPage
from cdc_reader.changes.delta import Delta, merge
from cdc_reader.changes.hashing import Hashes, combined, hashes
from cdc_reader.changes.operation import MEANINGS, ChangeOperation
from cdc_reader.changes.part import Part, snapshot_parts
from cdc_reader.changes.records import IMAGES, RANGE_BOUNDS, ChangeRows
from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import BATCH_SEQ_NO, STREAM_ID, TIME, TTL, Operation
from cdc_reader.cql.values import FrozenDict
from cdc_reader.decoding.faults import Fault
from cdc_reader.streams.stream import STREAM_ID_BYTES, StreamId

T_co = TypeVar("T_co", covariant=True)

_IMAGE = 2
"""The kind of image rows, which have no deltas. Regular rows have kind 0, static rows kind 1."""


class Items(Protocol[T_co]):
    """An item for each change of a page, or for each of its log rows."""

    def __getitem__(self, index: int, /) -> T_co: ...


class _Computed(Generic[T_co]):
    """A sequence whose items are computed on access."""

    def __init__(self, compute: Callable[[int], T_co]) -> None:
        self._compute = compute

    def __getitem__(self, index: int, /) -> T_co:
        return self._compute(index)


class ChangePage:
    """The changes of a page. Each property contains one item for each change.

    Items that are mappings are made anew on each access, and belong to the change that requested
    them.
    """

    def __init__(self, log: LogPage, changes: ChangeRows) -> None:
        self.log = log
        self.change_rows = changes

    @cached_property
    def are_last(self) -> Items[bool]:
        """Whether each change is the last of its record."""
        return _list(self.change_rows.are_last)

    @cached_property
    def are_complete(self) -> Items[bool]:
        """Whether the record of each change was read to its end."""
        return _list(self.change_rows.are_complete)

    @cached_property
    def operations(self) -> list[ChangeOperation]:
        """The operation of each change."""
        codes = _list(self.change_rows.operations[self.change_rows.main])
        named = {code: MEANINGS[Operation(code)] for code in set(codes)}
        return [named[code] for code in codes]

    @cached_property
    def are_static(self) -> Items[bool]:
        """Whether each change affects the static columns of a partition."""
        rows = self.log.are_static[self.change_rows.first].tolist()
        pairs = zip(rows, self.operations, strict=True)
        return [is_static and not operation.is_delete for is_static, operation in pairs]

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

    @cached_property
    def streams(self) -> Items[StreamId]:
        """The stream of each change."""
        if not self.log.is_of_arrow:
            return [StreamId(raw) for raw in self._first_values(STREAM_ID)]
        return decoding.blobs(self._first_cells(STREAM_ID), StreamId, STREAM_ID_BYTES)

    @cached_property
    def times(self) -> Items[UUID]:
        """The `cdc$time` of each change."""
        return self._first_values(TIME)

    @cached_property
    def timestamps(self) -> Indices:
        """The write timestamp of each change, in µs since 1970."""
        if not self.log.is_of_arrow:
            return np.array([timeuuid.micros(each.bytes) for each in self._first_values(TIME)])
        found: Indices = to_numpy(decoding.micros_of(self._first_cells(TIME)))
        return found

    @cached_property
    def write_times(self) -> Items[Micros]:
        """The write timestamp of each change, as Python objects."""
        return decoding.values(to_arrow(self.timestamps))

    @cached_property
    def seqs(self) -> Items[tuple[int, ...]]:
        """The `cdc$batch_seq_no` of the log rows of each change."""
        numbers = self.log[BATCH_SEQ_NO]
        if self.change_rows.are_single:
            return decoding.Tuples(numbers)
        return decoding.Tuples(numbers, *self._places)

    @property
    def has_undecoded(self) -> bool:
        """Whether a change has a value that could not be decoded."""
        return bool(self.log.faults)

    @cached_property
    def undecoded(self) -> Items[FrozenDict[str, str]]:
        """The values of each change that could not be decoded, as text, by column."""
        found = {number: _by_column(faults) for number, faults in self.faults.items()}
        return _Computed(lambda number: found.get(number, _ALL_DECODED))

    @cached_property
    def faults(self) -> Mapping[int, list[Fault]]:
        """The faults of each change that has any."""
        found: dict[int, list[Fault]] = {}
        for row, faults in self.log.faults.items():
            found.setdefault(int(self.change_rows.changes[row]), []).extend(faults)
        return found

    @cached_property
    def parts(self) -> Items[tuple[Part, ...]]:
        """The parts of each change."""
        log, changes = self.log, self.change_rows
        if changes.are_snapshot:
            return _Computed(lambda number: snapshot_parts(log, number, self.deltas[number]))
        columns = {
            "operation": log.operations,
            "seq": log[BATCH_SEQ_NO],
            "ttl": log[TTL],
            "deltas": self.deltas_of_rows,
            "timestamp": None,
        }
        rows = changes.order[~changes.having(IMAGES)[changes.order]]
        counts = np.bincount(changes.changes[rows], minlength=changes.count)
        bounds = np.concatenate([[0], np.cumsum(counts)])
        return decoding.Tuples(decoding.Objects(Part, columns), _list(rows), _list(bounds))

    @cached_property
    def ttls(self) -> Items[int | None]:
        """The TTL of all live parts of each change; None if they have no TTL or different TTLs."""
        log, changes = self.log, self.change_rows
        if changes.are_snapshot or not log.is_of_arrow:
            return _Computed(self._ttl)
        if not log.has(TTL):
            return [None] * changes.count
        ttls = filled(log.batch.column(TTL), _NO_TTL).astype(np.int64)
        are_live = changes.having((Operation.INSERT,)) | log.have_live_cells()
        are_live &= ~changes.having(IMAGES)
        least, most = np.full(changes.count, _ENDLESS), np.full(changes.count, _NO_TTL)
        np.minimum.at(least, changes.changes[are_live], ttls[are_live])
        np.maximum.at(most, changes.changes[are_live], ttls[are_live])
        return decoding.values(to_arrow(most, nulls=(least != most) | (most == _NO_TTL)))

    @cached_property
    def partition_hashes(self) -> Hashes:
        """For each change, a hash of its table and its partition key, the same in all pages."""
        table = np.array([hash(self.log.layout.schema.base.name)], np.int64).view(np.uint64)
        found = np.repeat(table, self.change_rows.count)
        for name in self.log.layout.partition_key:
            found = combined(found, hashes(self._first_cells(name)))
        return found

    def _ttl(self, number: int) -> int | None:
        """Return the TTL of a change, computed from its parts; see `ttls`."""
        found = {part.ttl for part in self.parts[number] if part.is_live}
        return found.pop() if len(found) == 1 else None

    def _first_values(self, name: str) -> Sequence[Any]:
        """Return the values of a log column at the first row of each change."""
        log, changes = self.log, self.change_rows
        return log[name] if changes.are_single else log.at(name, changes.first)

    def _first_cells(self, name: str) -> pa.Array:
        """Return the cells of a log column at the first row of each change."""
        column, changes = self.log.batch.column(name), self.change_rows
        return column if changes.are_single else column.take(to_arrow(changes.first))

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


def _by_column(faults: Iterable[Fault]) -> FrozenDict[str, str]:
    """Return the distinct values of each column, separated by commas."""
    found: dict[str, dict[str, None]] = {}
    for fault in faults:
        found.setdefault(fault.column, {})[fault.raw] = None
    return FrozenDict({column: ", ".join(values) for column, values in found.items()})


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
_ALL_DECODED: FrozenDict[str, str] = FrozenDict()

_NO_TTL, _ENDLESS = -1, 2**63 - 1
"""Numbers that are smaller and larger than every TTL."""
