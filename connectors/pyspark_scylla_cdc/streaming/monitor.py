"""Adds the driver's statistics of a micro-batch to its partitions, whose tasks report them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql.datasource import InputPartition

from cdc_reader._stats import ReadStats, recorded_in
from cdc_reader._time import Micros
from cdc_reader.streams.generation import Timeline
from pyspark_scylla_cdc.executors.reporting import ReportedPartition
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.reports import Plan


class Monitor:
    """Collects statistics of the driver's work for a micro-batch, up to its plan."""

    def __init__(self, options: SourceOptions) -> None:
        self._table = str(options.table)
        self._is_asked = options.report_to is not None
        self._generation: Micros | None = None
        self._late_rows = 0
        self._stats = ReadStats()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Count the driver's queries in this block, and the time that the driver waits for them."""
        with recorded_in(self._stats):
            yield

    def count_late_rows(self, count: int) -> None:
        """Count late rows that were found but will not be delivered."""
        self._late_rows += count

    def see(self, timeline: Timeline) -> None:
        """Record the generations with which a micro-batch is planned."""
        self._generation = max(timeline.starts, default=None)

    def reported(
        self, partitions: Sequence[InputPartition], end: Micros
    ) -> Sequence[InputPartition]:
        """Return the partitions; with option `reportTo`, their tasks also send reports."""
        if not (self._is_asked and partitions):
            return partitions
        count = len(partitions)
        plan = Plan(self._table, end, self._generation, count, self._late_rows, self._stats)
        self._late_rows, self._stats = 0, ReadStats()
        return [ReportedPartition(part, plan, place) for place, part in enumerate(partitions)]
