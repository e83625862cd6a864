"""Rows: a marker, cells by column, and a deletion."""

from __future__ import annotations

from attrs import define, field

from cdc_reader.testing.embedded.storage.cell import Cell, MultiCell, covers, latest, reconcile

LiveValue = Cell | dict[bytes, Cell]


@define
class Row:
    """One clustering row, or a partition's static row.

    `key` contains the serialized clustering values (empty for static rows and tables without
    clustering columns). `marker` is written by INSERT. `deletion` is the row tombstone's time.
    """

    key: tuple[bytes, ...] = ()
    marker: Cell | None = None
    cells: dict[str, Cell | MultiCell] = field(factory=dict)
    deletion: int | None = None

    def merge(self, other: Row) -> None:
        """Merge `other` into this row; where both have a cell, the winner remains."""
        self.deletion = latest(self.deletion, other.deletion)
        if other.marker is not None:
            self.set_marker(other.marker)
        for name, value in other.cells.items():
            if isinstance(value, MultiCell):
                self.multi_cell(name).merge(value)
            else:
                self.set_cell(name, value)

    def set_marker(self, marker: Cell) -> None:
        self.marker = marker if self.marker is None else reconcile(self.marker, marker)

    def set_cell(self, name: str, cell: Cell) -> None:
        """Write an atomic cell; the winner of the old and the new cell remains."""
        mine = self.cells.get(name)
        self.cells[name] = reconcile(mine, cell) if isinstance(mine, Cell) else cell

    def multi_cell(self, name: str) -> MultiCell:
        """Return the multi-cell value of column `name`; create it if absent."""
        value = self.cells.get(name)
        if not isinstance(value, MultiCell):
            value = self.cells[name] = MultiCell()
        return value

    def delete(self, timestamp: int) -> None:
        self.deletion = latest(self.deletion, timestamp)

    def live(self, deletion: int | None, now: int) -> LiveRow:
        """Return the live row at `now` (seconds).

        `deletion` is the time of a range or partition tombstone that covers the row, if any.
        """
        floor = latest(self.deletion, deletion)
        marker = self.marker
        if marker is not None and (not marker.is_live(now) or covers(floor, marker.timestamp)):
            marker = None
        cells: dict[str, LiveValue] = {}
        for name, value in self.cells.items():
            if isinstance(value, MultiCell):
                if elements := value.live(floor, now):
                    cells[name] = elements
            elif (
                value.value is not None
                and (not value.ttl or now < value.expiry)
                and (floor is None or value.timestamp > floor)
            ):
                cells[name] = value
        return LiveRow(self.key, marker, cells)

    def is_empty(self) -> bool:
        """Return True if the row has no cells, marker or deletion."""
        return self.marker is None and not self.cells and self.deletion is None

    def copy(self) -> Row:
        cells = {n: v.copy() if isinstance(v, MultiCell) else v for n, v in self.cells.items()}
        return Row(self.key, self.marker, cells, self.deletion)


@define
class LiveRow:
    """The live cells of a row; for a multi-cell column, a mapping of element keys to cells."""

    key: tuple[bytes, ...]
    marker: Cell | None
    cells: dict[str, LiveValue]

    def __bool__(self) -> bool:
        """Return True if the row exists: it has a live marker or a live cell."""
        return self.marker is not None or bool(self.cells)
