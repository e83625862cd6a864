"""The state of copies: their files, and how far behind their tables they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import overload

from attrs import frozen
from pyspark.sql import SparkSession

from cdc_reader._html import html_table
from cdc_reader._time import as_datetime
from pyspark_scylla_cdc.monitoring.status import CopyFiles
from pyspark_scylla_cdc.offsets.spark_checkpoint import last_commit, planned
from pyspark_scylla_cdc.tables.maintenance import is_due
from pyspark_scylla_cdc.tables.sink import Files


@frozen
class CopyStatus:
    """The state of a copy at the time `as_of`; `Mirror.status` returns one for each table."""

    target: str
    files: CopyFiles
    committed: datetime | None
    """When Spark committed the last micro-batch; None before the first one."""
    position: datetime | None
    """The copy has the changes that were written before this time; None until its first snapshot is
    complete."""
    as_of: datetime

    @property
    def lag_seconds(self) -> float | None:
        """Seconds from `position` to `as_of`; None without a position."""
        return None if self.position is None else (self.as_of - self.position).total_seconds()


@frozen
class CopyStatuses(Sequence[CopyStatus]):
    """The states of several copies, which are shown as a table."""

    _copies: Sequence[CopyStatus]

    @overload
    def __getitem__(self, index: int) -> CopyStatus: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[CopyStatus]: ...

    def __getitem__(self, index: int | slice) -> CopyStatus | Sequence[CopyStatus]:
        return self._copies[index]

    def __len__(self) -> int:
        return len(self._copies)

    def __str__(self) -> str:
        cells = [_HEADINGS, *map(_cells, self)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_table("Copies", _HEADINGS, map(_cells, self))


_HEADINGS = ("copy", "rows", "MB", "files", "to compact", "last commit", "lag")


def _cells(of: CopyStatus) -> Sequence[str]:
    """Return a row of the table."""
    files, lag = of.files, of.lag_seconds
    return (
        of.target,
        f"{files.rows:,}",
        f"{files.size / 1e6:,.1f}",
        f"{files.files:,}",
        f"{files.due:,} buckets",
        "none yet" if of.committed is None else f"{of.committed:%Y-%m-%d %H:%M:%S}Z",
        "in its snapshot" if lag is None else f"{lag:,.0f} s",
    )


def copy_files(files: Mapping[int, Files]) -> CopyFiles:
    """Return the sums over the buckets of a copy."""
    every = files.values()
    return CopyFiles(
        rows=sum(each.rows for each in every),
        size=sum(each.size for each in every),
        files=sum(each.count for each in every),
        due=sum(map(is_due, every)),
    )


def status_of(spark: SparkSession, checkpoint: str, target: str, files: CopyFiles) -> CopyStatus:
    """Return the state of the copy with this checkpoint."""
    last, now = last_commit(spark, checkpoint), datetime.now(UTC)
    if last is None:
        return CopyStatus(target, files, None, None, now)
    number, committed = last
    [end] = planned(spark, checkpoint, number).ends
    position = None if end.is_before_snapshot else as_datetime(end.position)
    return CopyStatus(target, files, committed, position, now)
