"""A partition: a deletion, a static row, clustering rows in order, and range tombstones.

The same class represents a mutation, which is a write to one partition.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field
from sortedcontainers import SortedDict

from cdc_reader.testing.embedded.schema.table import Table
from cdc_reader.testing.embedded.storage.cell import Cell, latest
from cdc_reader.testing.embedded.storage.position import AFTER, BEFORE, Position, position
from cdc_reader.testing.embedded.storage.ranges import RangeTombstone, RangeTombstones
from cdc_reader.testing.embedded.storage.row import LiveRow, Row


@define(eq=False)
class Partition:
    """All data under one partition key (serialized values); `rows` maps positions to rows."""

    table: Table
    key: tuple[bytes, ...]
    deletion: int | None = None
    static: Row = field(factory=Row)
    rows: SortedDict[Position, Row] = field(factory=SortedDict)
    ranges: RangeTombstones = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.ranges = RangeTombstones(self.table.clustering_sort_keys)

    def row(self, key: tuple[bytes, ...]) -> Row:
        """Return the clustering row with this full key; create it if absent."""
        place = self.position(key)
        row: Row | None = self.rows.get(place)
        if row is None:
            row = self.rows[place] = Row(key)
        return row

    def delete(self, timestamp: int) -> None:
        self.deletion = latest(self.deletion, timestamp)

    def delete_range(self, tombstone: RangeTombstone) -> None:
        """Delete a range of rows; a range of exactly one row becomes a row deletion."""
        start, end = tombstone.start, tombstone.end
        if (
            start.prefix == end.prefix
            and len(start.prefix) == len(self.table.clustering)
            and (start.place, end.place) == (BEFORE, AFTER)
        ):
            self.row(start.prefix).delete(tombstone.timestamp)
        else:
            self.ranges.add(tombstone)

    def merge(self, other: Partition) -> None:
        """Merge `other` into this partition; cells under a tombstone stay, but reads skip them."""
        self.deletion = latest(self.deletion, other.deletion)
        self.static.merge(other.static)
        for place, row in other.rows.items():
            mine = self.rows.get(place)
            if mine is None:
                self.rows[place] = row.copy()
            else:
                mine.merge(row)
        for tombstone in other.ranges:
            self.ranges.add(tombstone)

    def position(self, key: tuple[bytes, ...]) -> Position:
        return position(self.table.clustering_sort_keys, key)

    def live_static(self, now: int) -> LiveRow:
        """Return the static row as read at `now` (seconds)."""
        return self.static.live(self.deletion, now)

    def live_row(self, key: tuple[bytes, ...], now: int) -> LiveRow:
        """Return a row as read at `now` (seconds); it is falsy if the row does not exist."""
        place = self.position(key)
        row: Row | None = self.rows.get(place)
        if row is None:
            return LiveRow(key, None, {})
        return row.live(self.deletion_at(place), now)

    def has_deleted(self, key: tuple[bytes, ...] | None) -> bool:
        """Return True if the row (static if `key` is None) or one of its cells was deleted."""
        row = self.static if key is None else self.rows.get(self.position(key)) or Row()
        deletion = self.deletion if key is None else self.deletion_at(self.position(key))
        cells = (cell for cell in row.cells.values() if isinstance(cell, Cell))
        return any(cell.value is None for cell in cells) or (row.deletion or deletion) is not None

    def live_rows(
        self,
        now: int,
        lower: Position | None = None,
        upper: Position | None = None,
        reverse: bool = False,
    ) -> Iterator[LiveRow]:
        """Yield the rows live at `now` (seconds) between two positions, in order or reversed."""
        for place in self.rows.irange(lower, upper, reverse=reverse):
            if live := self.rows[place].live(self.deletion_at(place), now):
                yield live

    def deletion_at(self, place: Position) -> int | None:
        """Return when `place` was last deleted, in a range or with the partition; None if never."""
        if not self.ranges.ranges:
            return self.deletion
        return latest(self.deletion, self.ranges.deletion_at(place))
