"""For each stream that a listener watches: its last status, and totals over its micro-batches."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Self

from attrs import define, evolve

from cdc_reader._time import Clock, as_datetime
from pyspark_scylla_cdc.monitoring.status import StreamStatus

Key = tuple[str, str, str]
"""A stream: the name of its query (or the id), its table's keyspace, and its table's name.

Spark reports a query's tables only with its progress, so the keyspace and the table of a query that
failed before its first micro-batch are empty.
"""


@define
class Totals:
    """Sums over the micro-batches of a stream; `StreamStatus` describes the figures."""

    rows: int = 0
    late_rows: int = 0
    micro_batches: int = 0
    seconds: float = 0.0
    failures: int = 0
    """Runs that ended with an error."""

    def add(self, status: StreamStatus) -> Self:
        """Add a micro-batch."""
        self.rows += status.rows
        self.late_rows += status.late_rows
        self.micro_batches += 1
        self.seconds += status.seconds
        return self


class MonitoredStreams:
    """Keeps the last status and the sums of each stream. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[str, Sequence[StreamStatus]] = {}
        self._started: dict[str, str] = {}
        self._expected: dict[str, Sequence[StreamStatus]] = {}
        self._known: dict[str, set[Key]] = {}
        self._totals: dict[Key, Totals] = {}

    def expect(self, query: str, statuses: Sequence[StreamStatus]) -> None:
        """Record what is known of a query before it starts, from its checkpoint."""
        with self._lock:
            self._expected[query] = statuses

    def start(self, query: str, run: str, name: str) -> None:
        """Record the name of a run's query, or its id if it has no name."""
        with self._lock:
            self._started[run] = name
            if known := self._expected.pop(query, ()):
                self._running[run] = [evolve(status, query=name) for status in known]

    def advance(self, query: str, run: str, statuses: Sequence[StreamStatus]) -> None:
        """Record the status of each source of a query's run after a micro-batch.

        Failures of the query that were recorded without a table now count for the query's tables.
        """
        with self._lock:
            self._running[run] = statuses
            self._known[query] = {key_of(status) for status in statuses}
            for status in statuses:
                key = key_of(status)
                self._totals[key] = self._totals.get(key, Totals()).add(status)
            for unknown in {_without_table(status.query) for status in statuses}:
                failures = self._totals.pop(unknown, Totals()).failures
                for key in self._known[query]:
                    self._totals[key].failures += failures

    def end(self, query: str, run: str, *, has_failed: bool, is_ours: bool = False) -> None:
        """Record that a query's run has ended.

        A failure of a query that has finished no micro-batch counts only if `is_ours` is True,
        because the query's sources are then unknown.
        """
        with self._lock:
            self._running.pop(run, None)
            name = self._started.pop(run, query)
            keys = self._known.get(query, set())
            if not keys and has_failed and is_ours:
                keys = {_without_table(name)}
            for key in keys:
                self._totals.setdefault(key, Totals()).failures += has_failed

    def statuses(self) -> tuple[StreamStatus, ...]:
        """Return the current status of each stream whose query is running."""
        now = as_datetime(self._clock.now())
        with self._lock:
            found = [status for statuses in self._running.values() for status in statuses]
        return tuple(evolve(status, as_of=now) for status in found)

    def totals(self) -> Mapping[Key, Totals]:
        """Return the sums, including the sums of streams that have ended."""
        with self._lock:
            return {key: evolve(totals) for key, totals in self._totals.items()}


def _without_table(name: str) -> Key:
    """Return the key of a query that has this name, or this id, and unknown tables."""
    return name, "", ""


def key_of(status: StreamStatus) -> Key:
    """Return the key of the stream that this status describes."""
    return status.query, status.table.keyspace, status.table.name
