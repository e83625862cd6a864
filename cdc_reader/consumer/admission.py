"""Admission control: delays reading threads to limit memory use, and to merge tables in order."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from cdc_reader._time import BEGINNING, FOREVER, Micros
from cdc_reader.cql.names import TableName


class InFlightLimit:
    """Admits readers while fewer than `changes` changes and `size` bytes are in flight.

    An admitted reader may exceed the limits by one page, so a page larger than a limit still
    passes.
    """

    def __init__(self, changes: int, size: int) -> None:
        self._limits = changes, size
        self._changes = self._size = 0
        self._is_closed = False
        self._room = threading.Condition()
        self.is_awaited = False
        """Whether a reader is waiting for capacity."""

    def enter(self, changes: int, size: int) -> bool:
        """Wait for capacity and reserve it; return False, without a reservation, if closed."""
        with self._room:
            while not (self._is_closed or self._has_room()):
                self.is_awaited = True
                self._room.wait()
            self.is_awaited = False
            if not self._is_closed:
                self._changes += changes
                self._size += size
            return not self._is_closed

    def leave(self, changes: int, size: int) -> None:
        """Release the capacity that `changes` changes and `size` bytes occupied."""
        with self._room:
            self._changes -= changes
            self._size -= size
            if self._has_room():
                self._room.notify_all()

    def close(self) -> None:
        """Admit no more readers, and wake all waiting readers."""
        with self._room:
            self._is_closed = True
            self._room.notify_all()

    def _has_room(self) -> bool:
        changes, size = self._limits
        return self._changes < changes and self._size < size


class TablesInOrder:
    """Lets each table deliver changes only while no other table may have earlier changes.

    Each table must pass its changes in order of write time. Changes of the same microsecond are
    delivered table by table, in the order of `tables`. A table that waits holds its batch in
    memory, so memory is bounded by one batch per table.

    `tables` may include patterns, which deliver nothing: how far a pattern has reached says before
    which time the tables that it will find have no changes.
    """

    def __init__(self, tables: Sequence[TableName]) -> None:
        self._next = dict.fromkeys(tables, BEGINNING)
        """For each table, the earliest possible time (µs) of its next change."""
        self._ranks = {table: rank for rank, table in enumerate(tables)}
        self._is_closed = False
        self._moved = threading.Condition()

    def add(self, table: TableName) -> None:
        """Let one more table deliver changes, after the others for changes of the same time."""
        with self._moved:
            self._next[table] = BEGINNING
            self._ranks.setdefault(table, len(self._ranks))

    def parts(self, table: TableName, times: Sequence[Micros]) -> Iterator[range]:
        """Yield consecutive ranges of the changes' indices, each when its changes may be delivered.

        `times` contains the write times of the changes. `close` drops the remaining changes.
        """
        at = 0
        while at < len(times) and (limit := self._await(table, times[at])) is not None:
            end = bisect_right(times, limit, at)
            yield range(at, end)
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
        """Wait until a change may be delivered; return `_limit` of the table, or None if closed."""
        self.reach(table, micros)
        with self._moved:
            while not self._is_closed and self._limit(table) < micros:
                self._moved.wait()
            return None if self._is_closed else self._limit(table)

    def _limit(self, table: TableName) -> Micros:
        """Return the last µs whose changes the table may deliver; ties go to the first table."""
        own = self._ranks[table]
        others = (
            micros - (self._ranks[other] < own)
            for other, micros in self._next.items()
            if other != table
        )
        return min(others, default=FOREVER)
