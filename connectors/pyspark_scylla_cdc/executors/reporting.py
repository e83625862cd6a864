"""Partitions of a micro-batch whose tasks report the cost of reading to a listener."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from cdc_reader._stats import ReadStats, each_recorded_in
from cdc_reader._time import format_timestamp
from pyspark_scylla_cdc.reports import Address, Plan, Report, send

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
"""The task property in which Spark stores the number of the micro-batch."""


class ReportedPartition(InputPartition):
    """A partition with its plan; `place` is the partition's index in the plan."""

    def __init__(self, partition: InputPartition, plan: Plan, place: int) -> None:
        self.partition = partition
        self.plan = plan
        self.place = place

    def __repr__(self) -> str:
        of = f"{self.place + 1} of {self.plan.partitions}, to {format_timestamp(self.plan.end)}"
        return f"ReportedPartition({self.partition!r}, {of})"


def reported(
    rows: Iterator[pa.RecordBatch], partition: ReportedPartition, address: Address | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the partition; after the last one, report the cost of reading them."""
    stats = ReadStats()
    yield from each_recorded_in(stats, rows)
    if (task := TaskContext.get()) is None or address is None:
        return
    query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
    if query and batch:
        attempt = task.taskAttemptId()
        send(Report(query, int(batch), attempt, partition.place, partition.plan, stats), address)
