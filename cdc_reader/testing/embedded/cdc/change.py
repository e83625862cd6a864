"""The changes that a write makes, individually and grouped into log records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import field, frozen

from cdc_reader.testing.embedded.storage.cell import Cell, MultiCell
from cdc_reader.testing.embedded.storage.ranges import RangeTombstone

RowKey = tuple[bytes, ...] | None
"""Serialized clustering values; None for the static row."""


@frozen
class RowWrite:
    """One insert or update: the cells written to a row and, for an INSERT, the row marker."""

    key: RowKey
    marker: Cell | None = None
    cells: dict[str, Cell | MultiCell] = field(factory=dict)

    @property
    def ttl(self) -> int:
        """The TTL that all live cells share, in seconds; 0 for none."""
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
    """The deletion of a clustering row."""

    key: tuple[bytes, ...]


@frozen
class RangeDelete:
    """The deletion of a range of rows."""

    range: RangeTombstone


@frozen
class PartitionDelete:
    """The deletion of a partition."""


Change = RowWrite | RowDelete | RangeDelete | PartitionDelete


@frozen
class Record:
    """All changes to one partition that have the same timestamp (µs), in log order."""

    timestamp: int
    changes: tuple[Change, ...]

    def touched(self, all_columns: set[str]) -> Mapping[RowKey, set[str]]:
        """Return the changed columns of each row; a row deletion changes `all_columns`."""
        touched: dict[RowKey, set[str]] = {}
        for change in self.changes:
            if isinstance(change, RowWrite):
                touched.setdefault(change.key, set()).update(change.cells)
            elif isinstance(change, RowDelete):
                touched.setdefault(change.key, set()).update(all_columns)
        return touched
