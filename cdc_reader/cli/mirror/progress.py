"""The progress of a copy, on stderr."""

from __future__ import annotations

import time

import click
from attrs import define, field

from cdc_reader._time import SystemClock
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.replicate import Report
from cdc_reader.cli.snapshot_progress import SnapshotFigures
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint

_EVERY = 5.0
"""Seconds between two lines about the snapshot."""


@define(eq=False)
class Progress:
    """Prints what has been committed, to stderr."""

    table: TableName
    caught_up: int
    """See `Report.caught_up`."""
    report: Report = field(init=False)
    _rows: int = field(default=0, init=False)
    _printed: float = field(factory=time.monotonic, init=False)

    def __attrs_post_init__(self) -> None:
        self.report = Report(SystemClock(), self.caught_up, lambda: self._rows)

    def committed(self, position: Checkpoint, rows: int, changes: int) -> None:
        """See `cdc_reader.copies.keeping.Progress`."""
        self._rows += rows
        self.report.count(changes)
        snapshot = position.snapshot
        if snapshot is None:
            self.report.passed(position.position)
        elif time.monotonic() >= self._printed + _EVERY:
            self._printed = time.monotonic()
            name = CheckpointName("mirror", self.table)
            figures = SnapshotFigures.of(name, snapshot, self.report.clock.now())
            click.echo(f"{self.table}: {figures}", err=True)
