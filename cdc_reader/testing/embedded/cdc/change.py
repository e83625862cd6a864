"""The changes of a write, one by one and grouped into the records of the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import field, frozen

from cdc_reader.testing.embedded.storage.cell import Cell, MultiCell
from cdc_reader.testing.embedded.storage.ranges import RangeTombstone

RowKey = tuple[bytes, ...] | None
"""Serialised clustering values; None stands for the static row."""


@frozen
class RowWrite:
    """The cells written to a row, or its marker: one insert or update of the log."""

    key: RowKey
    marker: Cell | None = None
    cells: dict[str, Cell | MultiCell] = field(factory=dict)

    @property
    def ttl(self) -> int:
        """The one TTL of all live cells here, 0 for none."""
        if self.marker is not None and self.marker.ttl:
            return self.marker.ttl
        return max((c.ttl for c in self._atoms() if c.value is not None), default=0)

    def _atoms(self) -> Iterator[Cell]:
        for value in self.cells.values():
            if isinstance(value, MultiCell):
                yield from value.cells.values()
            else:
                yield value


@frozen
class RowDelete:
    """A whole clustering row deleted."""

    key: tuple[bytes, ...]


@frozen
class RangeDelete:
    """A range of rows deleted."""

    range: RangeTombstone


@frozen
class PartitionDelete:
    """A whole partition deleted."""


Change = RowWrite | RowDelete | RangeDelete | PartitionDelete


@frozen
class Record:
    """All changes of one partition with one timestamp (µs), in the order the log shows them."""

    timestamp: int
    changes: tuple[Change, ...]

    def touched(self, all_columns: set[str]) -> Mapping[RowKey, set[str]]:
        """Return the columns that this record touches, by row; a deletion touches all."""
        touched: dict[RowKey, set[str]] = {}
        for change in self.changes:
            if isinstance(change, RowWrite):
                touched.setdefault(change.key, set()).update(change.cells)
            elif isinstance(change, RowDelete):
                touched.setdefault(change.key, set()).update(all_columns)
        return touched
