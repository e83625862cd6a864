"""The events that a consumer reports: handled windows, lost rows, and the ends of a snapshot.

With the events of snapshots, a copy can become correct again after a loss, although no change
reports the rows that were deleted in the lost span. A change of a snapshot has the snapshot's
`time` as its timestamp, and all changes handled before the snapshot have earlier timestamps. A copy
that stores the timestamp of each row's last change can therefore delete all rows with timestamps
before `time` when the snapshot is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen

from cdc_reader._time import Micros
from cdc_reader.cql.names import TableName
from cdc_reader.streams.window import Window


@frozen
class WindowHandled:
    """All changes to `table` written in `window` have been handled; the window may be empty.

    Windows are reported in order and without gaps.
    """

    table: TableName
    window: Window


@frozen
class RowsLost:
    """Changes to `table` written in `window` were lost before they were read; reading continues."""

    table: TableName
    window: Window


@frozen
class SnapshotBegins:
    """The changes that follow are the rows of `table`, with timestamp `time` (µs since 1970).

    All earlier changes have been handled. If changes expired before they were read, `lost` is the
    span in which they were written; changes written before `time` are no longer delivered.
    """

    table: TableName
    time: Micros
    lost: Window | None = None


@frozen
class SnapshotComplete:
    """All rows of `table`, with timestamp `time` (µs), have been read and handled.

    Rows that were not delivered are no longer in the table, unless a later change inserts them.
    """

    table: TableName
    time: Micros


ConsumerEvent: TypeAlias = WindowHandled | RowsLost | SnapshotBegins | SnapshotComplete
"""The argument of `on_event`; use `match` to distinguish the events."""

OnEvent = Callable[[ConsumerEvent], object]
"""Called with an event, in one of the consumer's threads.

The consumer continues when the function returns. While a snapshot's event is reported, no change to
the table is handled. After a crash the same event may be reported again.
"""
