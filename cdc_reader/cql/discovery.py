"""Finds the tables that patterns such as ``shop.*`` stand for, also tables that appear later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

from cdc_reader._log import get_logger
from cdc_reader.cql.names import TableName
from cdc_reader.errors import TableNotFoundError

log = get_logger(__name__)

Logged = Callable[[str], Iterable[TableName]]
"""Returns the tables of a keyspace that have a log."""


class Discovery:
    """Finds tables that match the patterns in `names` and have a log, except for the other names.

    Thread-safe. A table is found until it is taken or left out. A table that was left out is found
    again once a look has shown that it, or its log, is gone: then it is another table.
    """

    def __init__(self, names: Collection[TableName]) -> None:
        self.patterns = tuple(name for name in names if name.is_pattern)
        self._taken = {*names}
        self._left_out: set[TableName] = set()
        self._lock = threading.Lock()

    def look(self, logged: Logged) -> list[TableName]:
        """Return the tables found now, by name; calls `logged` once for each keyspace."""
        found = self._matching(logged)
        with self._lock:
            self._left_out.intersection_update(found)
            return [name for name in found if name not in self._taken | self._left_out]

    def take(self, name: TableName) -> None:
        """Find the table no more, because it is followed."""
        with self._lock:
            self._taken.add(name)

    def leave_out(self, name: TableName, reason: Exception) -> None:
        """Find the table no more, because it cannot be followed; warn unless it was dropped."""
        with self._lock:
            self._taken.discard(name)
            self._left_out.add(name)
        if isinstance(reason, TableNotFoundError):
            log.info("table_gone", table=str(name))
        else:
            log.warning("table_left_out", table=str(name), reason=str(reason))

    def _matching(self, logged: Logged) -> list[TableName]:
        keyspaces = {pattern.keyspace for pattern in self.patterns}
        tables = (table for keyspace in keyspaces for table in logged(keyspace))
        found = (table for table in tables if any(it.matches(table) for it in self.patterns))
        return sorted(found, key=lambda name: (name.keyspace, name.name))
