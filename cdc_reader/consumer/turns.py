"""Orders the changes of several tables, each read in its own thread."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from cdc_reader._time import BEGINNING, FOREVER, Micros
from cdc_reader.changes.change import Change
from cdc_reader.cql.names import TableName


class Turns:
    """Lets each table hand out changes only while no other may still have earlier ones.

    A table's changes must come in order of write time. Changes of one microsecond go table by
    table, in the order of `tables`. A table that waits keeps its batch, so memory is bounded by one
    batch per table.
    """

    def __init__(self, tables: Sequence[TableName]) -> None:
        self._next = dict.fromkeys(tables, BEGINNING)
        """For each table, in µs: none of its further changes is earlier."""
        self._ranks = {table: rank for rank, table in enumerate(tables)}
        self._is_closed = False
        self._moved = threading.Condition()

    def runs(self, table: TableName, changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
        """Yield the changes in runs, each once it is its turn; `close` drops the rest."""
        times = [change.timestamp for change in changes]
        at = 0
        while at < len(times) and (limit := self._await(table, times[at])) is not None:
            end = bisect_right(times, limit, at)
            yield changes[at:end]
            at = end

    def reach(self, table: TableName, micros: Micros) -> None:
        """Record that the table has no further changes before `micros`."""
        with self._moved:
            self._next[table] = max(self._next[table], micros)
            self._moved.notify_all()

    def close(self) -> None:
        """End all waits."""
        with self._moved:
            self._is_closed = True
            self._moved.notify_all()

    def _await(self, table: TableName, micros: Micros) -> Micros | None:
        """Wait for a change's turn; returns the table's limit in µs, or None once closed."""
        self.reach(table, micros)
        with self._moved:
            while not self._is_closed and self._limit(table) < micros:
                self._moved.wait()
            return None if self._is_closed else self._limit(table)

    def _limit(self, table: TableName) -> Micros:
        """The last µs before any other table's changes; if tables tie, the first table's."""
        own = self._ranks[table]
        others = (
            micros - (self._ranks[other] < own)
            for other, micros in self._next.items()
            if other != table
        )
        return min(others, default=FOREVER)
