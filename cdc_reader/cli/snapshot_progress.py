"""Shows the progress of a snapshot in commands."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict

import click
from attrs import define, field, frozen

from cdc_reader._time import Micros
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cql.names import TableName
from cdc_reader.metrics import SNAPSHOT_ROWS, SNAPSHOT_SECONDS_LEFT, SNAPSHOT_SHARE, Metric
from cdc_reader.reading.cursor import SnapshotProgress
from cdc_reader.streams.ring import WHOLE_RING
from cdc_reader.streams.shard import Shard

_EVERY = 5.0
"""Seconds between two progress lines of one table."""
_MINUTE, _HOUR = 60, 3_600


@frozen
class SnapshotFigures:
    """The acknowledged part of a snapshot: `rows`, the fraction `share`, and the seconds left.

    The seconds left are estimated from the average rate since the snapshot began, including
    interruptions. They are None if nothing has been read yet.
    """

    rows: int
    share: float
    seconds_left: float | None

    @classmethod
    def of(cls, name: CheckpointName, kept: SnapshotProgress, now: Micros) -> SnapshotFigures:
        """Return the state of a checkpoint's snapshot.

        Each shard is assumed to cover an equal part of the ring.
        """
        share = min(1.0, kept.done.size * Shard.parse(name.shard).count / WHOLE_RING.size)
        took = max(0, now - kept.began) / 1_000_000
        return cls(kept.rows, share, took * (1 - share) / share if share else None)

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", {_span(self.seconds_left)} left"
        return f"snapshot: {self.rows:,} rows, {self.share:.0%}{left}"


@define
class SnapshotLines:
    """A recorder that prints the progress of snapshots to stderr every few seconds."""

    _values: defaultdict[tuple[Metric, TableName], float] = field(
        factory=lambda: defaultdict(float), init=False
    )
    _printed: dict[TableName, float] = field(factory=dict, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def add(self, metric: Metric, table: TableName, amount: float = 1) -> None:
        """See `Recorder.add`."""
        with self._lock:
            self._values[metric, table] += amount

    def set(self, metric: Metric, table: TableName, value: float) -> None:
        """See `Recorder.set`."""
        with self._lock:
            self._values[metric, table] = value
            is_due = metric is SNAPSHOT_SECONDS_LEFT and self._is_due(table)
        if is_due:
            click.echo(f"{table}: {self._state(table)}", err=True)

    def rows(self, table: TableName) -> int:
        """Return how many rows of a table have been read."""
        with self._lock:
            return int(self._values[SNAPSHOT_ROWS, table])

    def _is_due(self, table: TableName) -> bool:
        """Return whether a line is due: at intervals, and at the end of the snapshot."""
        now, printed = time.monotonic(), self._printed.setdefault(table, time.monotonic())
        if self._values[SNAPSHOT_SHARE, table] < 1 and now < printed + _EVERY:
            return False
        self._printed[table] = now
        return True

    def _state(self, table: TableName) -> SnapshotFigures:
        rows, share, left = (
            self._values[metric, table]
            for metric in (SNAPSHOT_ROWS, SNAPSHOT_SHARE, SNAPSHOT_SECONDS_LEFT)
        )
        is_known = share < 1 and not math.isnan(left)
        return SnapshotFigures(int(rows), share, left if is_known else None)


def _span(seconds: float) -> str:
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h"
