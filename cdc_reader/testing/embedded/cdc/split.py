"""Splits a mutation into log records: a single one if possible, else one per timestamp.

The rules are ScyllaDB's (`cdc/split.cc`). The parts of a mutation are visited in this order: static
cells, rows in clustering order, range tombstones, and the partition tombstone. In a row, the marker
comes first, then the columns by name, then the row tombstone. In a collection, the tombstone comes
before the elements.

The mutation becomes one record unless that would lose information. It is split, for example, if its
timestamps or TTLs differ, if it changes both the static row and clustering rows, or if a row
deletion follows an upsert (see `_Walk.is_simple`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from attrs import astuple, define, field

from cdc_reader.testing.embedded.cdc.change import (
    Change,
    PartitionDelete,
    RangeDelete,
    Record,
    RowDelete,
    RowKey,
    RowWrite,
)
from cdc_reader.testing.embedded.storage.cell import Cell, MultiCell
from cdc_reader.testing.embedded.storage.partition import Partition
from cdc_reader.testing.embedded.storage.row import Row

Stamp = tuple[int, int]
"""(timestamp in µs, TTL in s), which all cells of a delta row share."""


def records(mutation: Partition) -> list[Record]:
    """Return the records of `mutation` in order of timestamp, or none if it changes nothing."""
    walk = _Walk()
    walk.partition(mutation)
    if not walk.stamps:
        return []
    if walk.is_simple():
        [(timestamp, _)] = walk.stamps
        return [Record(timestamp, tuple(_in_visit_order(mutation)))]
    return _by_timestamp(mutation)


def collection_time(deletion: int) -> int:
    """Return the time at which a collection tombstone is logged: 1 µs after its timestamp.

    In an overwrite, this is the timestamp of the new elements.
    """
    return deletion + 1


def by_name(row: Row) -> list[tuple[str, Cell | MultiCell]]:
    """Return a row's cells in visit order."""
    return sorted(row.cells.items(), key=lambda item: item[0].encode())


@define
class _Walk:
    """Visits a mutation, and collects the reasons why it cannot be a single record."""

    stamps: set[Stamp] = field(factory=set)
    blurred: bool = False
    seen_upsert: bool = False
    seen_marker: bool = False

    def is_simple(self) -> bool:
        return not self.blurred and len(self.stamps) == 1

    def partition(self, mutation: Partition) -> None:
        self.row(mutation.static)
        has_static = bool(self.stamps)
        for row in mutation.rows.values():
            self.clustered(row)
        has_rows = len(mutation.rows) > 0
        for tombstone in mutation.ranges:
            self.stamps.add((tombstone.timestamp, 0))
        if mutation.deletion is not None:
            self.stamps.add((mutation.deletion, 0))
            self.blurred = True
        if (has_static and has_rows) or ((has_static or has_rows) and len(mutation.ranges)):
            self.blurred = True

    def clustered(self, row: Row) -> None:
        upserts = row.marker is not None or bool(row.cells)
        self.row(row)
        self.seen_upsert |= upserts
        if row.deletion is not None:
            self.stamps.add((row.deletion, 0))
            self.blurred |= self.seen_upsert

    def row(self, row: Row) -> None:
        if row.marker is not None:
            self.seen_marker = True
            self.stamps.add((row.marker.timestamp, row.marker.ttl))
        for _, value in by_name(row):
            if isinstance(value, Cell):
                self.stamps.add(_stamp(value))
            else:
                self.collection(value)

    def collection(self, value: MultiCell) -> None:
        if value.deletion is not None:
            self.stamps.add((collection_time(value.deletion), 0))
        for cell in value.cells.values():
            self.stamps.add(_stamp(cell))
            self.blurred |= self.seen_marker and cell.value is not None


def _stamp(cell: Cell) -> Stamp:
    return cell.timestamp, cell.ttl if cell.value is not None else 0


def _in_visit_order(mutation: Partition) -> Iterator[Change]:
    if mutation.static.cells:
        yield RowWrite(None, None, dict(by_name(mutation.static)))
    for row in mutation.rows.values():
        if row.marker is not None or row.cells:
            yield RowWrite(row.key, row.marker, dict(by_name(row)))
        if row.deletion is not None:
            yield RowDelete(row.key)
    for tombstone in mutation.ranges:
        yield RangeDelete(tombstone)


@define
class _Group:
    """The changes that share a timestamp, by kind; the fields are in log order."""

    statics: list[Change] = field(factory=list)
    inserts: list[Change] = field(factory=list)
    updates: list[Change] = field(factory=list)
    row_deletes: list[Change] = field(factory=list)
    range_deletes: list[Change] = field(factory=list)
    partition_deletes: list[Change] = field(factory=list)

    def in_order(self) -> tuple[Change, ...]:
        return tuple(chain(*astuple(self, recurse=False)))


def _by_timestamp(mutation: Partition) -> list[Record]:
    groups: defaultdict[int, _Group] = defaultdict(_Group)
    for (timestamp, _), cells in sorted(_buckets(mutation.static).items()):
        groups[timestamp].statics.append(RowWrite(None, None, cells))
    for row in mutation.rows.values():
        _split_row(row, groups)
    for tombstone in mutation.ranges:
        groups[tombstone.timestamp].range_deletes.append(RangeDelete(tombstone))
    if mutation.deletion is not None:
        groups[mutation.deletion].partition_deletes.append(PartitionDelete())
    return [Record(timestamp, groups[timestamp].in_order()) for timestamp in sorted(groups)]


def _split_row(row: Row, groups: defaultdict[int, _Group]) -> None:
    buckets = _buckets(row)
    marker = row.marker
    if marker is not None:
        # An INSERT may write only a marker, so its bucket exists even without cells.
        buckets.setdefault((marker.timestamp, marker.ttl), {})
    for (timestamp, ttl), cells in sorted(buckets.items()):
        group = groups[timestamp]
        if marker is not None and (timestamp, ttl) == (marker.timestamp, marker.ttl):
            _split_insert(row.key, marker, cells, group)
        else:
            group.updates.append(RowWrite(row.key, None, cells))
    if row.deletion is not None:
        groups[row.deletion].row_deletes.append(RowDelete(row.key))


def _split_insert(
    key: RowKey, marker: Cell, cells: dict[str, Cell | MultiCell], group: _Group
) -> None:
    """Move collection cells without a tombstone to an update; an INSERT never writes such cells."""
    added, inserted = dict[str, Cell | MultiCell](), dict[str, Cell | MultiCell]()
    for name, value in cells.items():
        without_tombstone = isinstance(value, MultiCell) and value.deletion is None
        (added if without_tombstone else inserted)[name] = value
    group.inserts.append(RowWrite(key, marker, inserted))
    if added:
        group.updates.append(RowWrite(key, None, added))


def _buckets(row: Row) -> dict[Stamp, dict[str, Cell | MultiCell]]:
    buckets: defaultdict[Stamp, dict[str, Cell | MultiCell]] = defaultdict(dict)
    for name, value in by_name(row):
        if isinstance(value, Cell):
            buckets[_stamp(value)][name] = value
            continue
        if value.deletion is not None:
            _collection(buckets[collection_time(value.deletion), 0], name).deletion = value.deletion
        for key, cell in value.cells.items():
            _collection(buckets[_stamp(cell)], name).cells[key] = cell
    return dict(buckets)


def _collection(cells: dict[str, Cell | MultiCell], name: str) -> MultiCell:
    value = cells.get(name)
    if not isinstance(value, MultiCell):
        value = cells[name] = MultiCell()
    return value
