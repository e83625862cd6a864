"""The status of a streaming query that reads a log."""

from __future__ import annotations

import math
from datetime import datetime

from attrs import frozen

from cdc_reader.cql.names import TableName


@frozen
class StreamStatus:
    """A streaming query's source after its last micro-batch, as of a moment.

    The figures of the micro-batch come from Spark's progress and its offsets. The last seven need
    option ``reportTo``: they are None without it, and cover only the partitions whose tasks
    reported, `partitions_reported` of `partitions`.
    """

    query: str
    """The query's name; its id if it has none."""
    table: TableName
    batch: int
    rows: int
    """Rows that the micro-batch read, in the source's format, as Spark counts them: if a
    ``foreachBatch`` reads them twice, they count twice."""
    rows_per_second: float
    seconds: float
    """How long the micro-batch took."""
    late_rows: int
    """Late rows and strays: delivered or, with `lateRows` ``report``, found since the last one."""
    position: datetime
    """Every row written before is delivered."""
    expires: datetime | None
    """When the first unread row may expire; None if the log keeps rows forever."""
    as_of: datetime
    snapshot_share: float | None = None
    """How much of its snapshot the query has read, from 0 to 1: measured in tokens, and so
    approximately in partitions. None if the micro-batch read no rows of a snapshot.
    """
    lost: tuple[datetime, datetime] | None = None
    """When the changes that expired unread were written, if the micro-batch begins a new snapshot
    because of them (`onDataLoss` ``resnapshot``).
    """
    generation: datetime | None = None
    """When the newest generation began."""
    queries: int | None = None
    """Queries sent by tasks, and by the driver since the previous micro-batch; further pages are
    not counted.
    """
    retries: int | None = None
    """Requests that tasks or the driver repeated."""
    waiting_seconds: float | None = None
    """How long tasks and driver waited for ScyllaDB, summed over concurrent tasks."""
    bad_records: int | None = None
    """Rows that could not be converted, and that `onBadRecord` skipped or quarantined."""
    partitions: int | None = None
    partitions_reported: int | None = None

    @property
    def lag_seconds(self) -> float:
        """Seconds from `position` to `as_of`."""
        return max(0.0, (self.as_of - self.position).total_seconds())

    @property
    def retention_headroom_seconds(self) -> float:
        """Seconds until the first unread row may expire; inf if the log keeps rows forever."""
        return math.inf if self.expires is None else (self.expires - self.as_of).total_seconds()

    @property
    def snapshot_seconds_left(self) -> float | None:
        """Seconds until the snapshot is read, at the mean pace since it began; None if unknown."""
        if not self.snapshot_share:
            return None
        return self.lag_seconds * (1 - self.snapshot_share) / self.snapshot_share
