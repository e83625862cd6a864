"""The status of a streaming query that reads a log."""

from __future__ import annotations

import math
from datetime import datetime

from attrs import frozen

from cdc_reader.cql.names import TableName


@frozen
class CopyFiles:
    """The files of a copy that `mirror` maintains."""

    rows: int
    size: int
    """The size of the files, in bytes, without those of older versions."""
    files: int
    due: int
    """How many buckets of the copy are to be compacted."""


@frozen
class StreamStatus:
    """The state of a streaming query's source after its last micro-batch, at the time `as_of`.

    The metrics come from Spark's progress and the micro-batch's offsets.
    """

    query: str
    """The query's name, or its id if it has no name."""
    table: TableName
    batch: int
    rows: int
    """Rows of the source's format that the micro-batch read, as counted by Spark. Rows that a
    ``foreachBatch`` reads twice count twice."""
    rows_per_second: float
    seconds: float
    """How long the micro-batch took."""
    late_rows: int
    """Late rows and strays that the micro-batch delivered; with ``lateRows=report``, those found
    since the previous micro-batch.
    """
    position: datetime
    """Every row written before this time has been delivered."""
    expires: datetime | None
    """When the first unread row may expire; None if the log keeps rows forever."""
    as_of: datetime
    snapshot_share: float | None = None
    """The fraction of its snapshot that the query has read, from 0 to 1. It is measured in tokens,
    so it is approximately the fraction of partitions read. None if the micro-batch read no rows
    of a snapshot.
    """
    lost: tuple[datetime, datetime] | None = None
    """The first and last write times of changes that expired before they were read, if the
    micro-batch begins a new snapshot because of them (``onDataLoss=resnapshot``).
    """
    generation: datetime | None = None
    """When the newest known generation began; None before the log is read."""
    copy: CopyFiles | None = None
    """The files of the copy when `mirror` last looked at them, after at most eight micro-batches;
    None for other queries, and in a Spark Connect session.
    """

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
        """Estimated seconds to complete the snapshot, at its average rate; None if unknown."""
        if not self.snapshot_share:
            return None
        return self.lag_seconds * (1 - self.snapshot_share) / self.snapshot_share
