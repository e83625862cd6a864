"""The actual contents of the log, read from the server's storage without queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from attrs import field, frozen

from cdc_reader.reading.cursor import RowKey, RowName
from cdc_reader.streams.stream import StreamId
from cdc_reader.testing.embedded.cdc.log_schema import log_name
from cdc_reader.testing.embedded.storage.cell import Cell

if TYPE_CHECKING:
    from cdc_reader.testing import EmbeddedScylla
    from cdc_reader.testing.embedded.storage.row import Row


@frozen(eq=False)
class LogRow:
    """A row of the log: its name, its write time and time of arrival (in µs), and its cells."""

    name: RowName
    micros: int
    arrived: int
    cells: Mapping[str, bytes] = field(repr=False)

    def number(self, column: str) -> int | None:
        """Return the value of an int column, or None if the row has no value."""
        cell = self.cells.get(column)
        return None if cell is None else int.from_bytes(cell, "big", signed=True)

    def fields(self, column: str) -> list[int | None]:
        """Return the fields of a user-defined type of ints, or an empty list for null."""
        cell, at, found = self.cells.get(column, b""), 0, []
        while at < len(cell):
            size = int.from_bytes(cell[at : at + 4], "big", signed=True)
            at += 4
            found.append(int.from_bytes(cell[at : at + size], "big") if size > 0 else None)
            at += max(0, size)
        return found

    def is_in_time(self, confidence: int, skew: int) -> bool:
        """Return True if the row arrived at most `confidence` µs after its write time.

        Arrival is measured by a clock that is `skew` µs ahead of the cluster's.
        """
        return self.arrived + skew <= self.micros + confidence


class Truth:
    """The rows of the log of ks.t, each with its time of arrival."""

    def __init__(self, server: EmbeddedScylla) -> None:
        self.rows: dict[RowName, LogRow] = {}
        self._server = server
        self._lengths: dict[object, int] = {}
        self._twins: defaultdict[RowKey, list[LogRow]] = defaultdict(list)

    def note(self, now: int) -> int:
        """Record, at time `now`, the rows that arrived since the last call. Return their number."""
        log = self._server.catalog.table("ks", log_name("t"))
        found = 0
        for place, partition in self._server.database.tables.get(log.id, {}).items():
            if len(partition.rows) != self._lengths.get(place, 0):
                self._lengths[place] = len(partition.rows)
                found += sum(
                    self._add(partition.key[0], row, now) for row in partition.rows.values()
                )
        return found

    def twins(self, row: LogRow) -> list[LogRow]:
        """Return all log rows of the same write, including this row."""
        return self._twins[row.name[1]]

    def between(self, start: int, end: int) -> Iterator[LogRow]:
        """Return the rows written in [start, end)."""
        return (row for row in self.rows.values() if start <= row.micros < end)

    def _add(self, stream: bytes, row: Row, now: int) -> bool:
        time, seq = row.key
        name = StreamId(stream), RowKey(time, int.from_bytes(seq, "big"))
        if name in self.rows:
            return False
        found = (
            (column, cell.value) for column, cell in row.cells.items() if isinstance(cell, Cell)
        )
        cells = {column: value for column, value in found if value is not None}
        self.rows[name] = added = LogRow(name, name[1].micros, now, cells)
        self._twins[name[1]].append(added)
        return True
