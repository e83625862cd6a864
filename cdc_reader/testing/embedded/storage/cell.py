"""Cells: values or tombstones, with the timestamp that decides which write wins."""

from __future__ import annotations

from attrs import define, field


@define(frozen=True)
class Cell:
    """A cell; if `value` is None, it is dead (a tombstone).

    `timestamp` is the write timestamp in µs. A cell with a `ttl` (seconds, 0 for none) is dead from
    `expiry` on (seconds of the server's clock). Live cells with the same timestamp are compared by
    `precedence`, then by value.
    """

    timestamp: int
    value: bytes | None
    ttl: int = 0
    expiry: int = 0
    precedence: int = 0

    def is_live(self, now: int) -> bool:
        """Return True if the cell has a value at `now` (seconds)."""
        return self.value is not None and (not self.ttl or now < self.expiry)


@define
class MultiCell:
    """The cells of a non-frozen collection or UDT, by serialized element key.

    The key is a set's element, a map's key, a list element's timeuuid, or a UDT's field index
    (smallint). `deletion` is the timestamp of the collection tombstone, if any.
    """

    deletion: int | None = None
    cells: dict[bytes, Cell] = field(factory=dict)

    def merge(self, other: MultiCell) -> None:
        """Merge `other` into this collection; of two cells with one key, the winner remains."""
        self.deletion = latest(self.deletion, other.deletion)
        for key, cell in other.cells.items():
            mine = self.cells.get(key)
            self.cells[key] = cell if mine is None else reconcile(mine, cell)

    def live(self, deletion: int | None, now: int) -> dict[bytes, Cell]:
        """Return the live cells that neither the collection tombstone nor `deletion` covers."""
        floor = latest(self.deletion, deletion)
        return {
            key: cell
            for key, cell in self.cells.items()
            if cell.is_live(now) and not covers(floor, cell.timestamp)
        }

    def copy(self) -> MultiCell:
        return MultiCell(self.deletion, dict(self.cells))


def reconcile(left: Cell, right: Cell) -> Cell:
    """Return the winner of two cells with the same key.

    The cell with the later timestamp wins. If the timestamps are equal, these rules apply in
    order: a dead cell wins over a live cell, the higher precedence wins, the larger value wins, a
    cell with a TTL wins over a cell without one, and the later expiry wins.
    """
    return left if _rank(left) >= _rank(right) else right


def _rank(cell: Cell) -> tuple[int, bool, int, bytes, bool, int]:
    return (
        cell.timestamp,
        cell.value is None,
        cell.precedence,
        cell.value or b"",
        cell.ttl > 0,
        cell.expiry,
    )


def latest(*deletions: int | None) -> int | None:
    """Return the latest deletion timestamp; None if there is none."""
    return max((d for d in deletions if d is not None), default=None)


def covers(deletion: int | None, timestamp: int) -> bool:
    """Return True if a deletion at time `deletion` hides a write at time `timestamp`."""
    return deletion is not None and timestamp <= deletion
