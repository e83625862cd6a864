"""The range tombstones of a partition: disjoint ranges in order, each with its deletion time.

Where ranges overlap, the later deletion wins; adjacent ranges with the same time are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from attrs import define, field, frozen

from cdc_reader.testing.embedded.codec.order import SortKey
from cdc_reader.testing.embedded.storage.cell import latest
from cdc_reader.testing.embedded.storage.position import Bound, Position


@frozen
class RangeTombstone:
    """Deletes everything between `start` and `end` that was written up to `timestamp` (µs)."""

    start: Bound
    end: Bound
    timestamp: int


@define
class RangeTombstones:
    """The range tombstones of one partition of a table with these clustering `sort_keys`."""

    sort_keys: Sequence[SortKey]
    ranges: list[RangeTombstone] = field(factory=list)

    def __iter__(self) -> Iterator[RangeTombstone]:
        return iter(self.ranges)

    def __len__(self) -> int:
        return len(self.ranges)

    def add(self, added: RangeTombstone) -> None:
        """Merge a range tombstone; an empty or inverted range changes nothing."""
        if self._position(added.start) >= self._position(added.end):
            return
        bounds = {self._position(b): b for r in (*self.ranges, added) for b in (r.start, r.end)}
        places = sorted(bounds)
        pieces: list[RangeTombstone] = []
        for left, right in pairwise(places):
            timestamp = self._deletion_between(left, right, added)
            if timestamp is not None:
                _append(pieces, RangeTombstone(bounds[left], bounds[right], timestamp))
        self.ranges = pieces

    def deletion_at(self, position: Position) -> int | None:
        """Return when a range that includes `position` was deleted; None if none was."""
        for tombstone in self.ranges:
            if self._position(tombstone.start) < position < self._position(tombstone.end):
                return tombstone.timestamp
        return None

    def copy(self) -> RangeTombstones:
        return RangeTombstones(self.sort_keys, list(self.ranges))

    def _position(self, bound: Bound) -> Position:
        return bound.position(self.sort_keys)

    def _deletion_between(
        self, left: Position, right: Position, added: RangeTombstone
    ) -> int | None:
        return latest(
            *(
                r.timestamp
                for r in (*self.ranges, added)
                if self._position(r.start) <= left and right <= self._position(r.end)
            )
        )


def _append(pieces: list[RangeTombstone], piece: RangeTombstone) -> None:
    if pieces and pieces[-1].end == piece.start and pieces[-1].timestamp == piece.timestamp:
        piece = RangeTombstone(pieces.pop().start, piece.end, piece.timestamp)
    pieces.append(piece)
