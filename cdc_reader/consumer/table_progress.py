"""Tracks one table's in-flight changes, and reports and saves its progress."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from cdc_reader._arrow import to_arrow
from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, FOREVER, Micros
from cdc_reader.changes.arrays import Indices
from cdc_reader.changes.change import Change
from cdc_reader.changes.page import ChangePage
from cdc_reader.checkpoints.acknowledgement import Acknowledgements, InFlightRows
from cdc_reader.checkpoints.lease import Lease
from cdc_reader.checkpoints.ranges import RangeAcknowledgements
from cdc_reader.consumer.admission import InFlightLimit
from cdc_reader.consumer.events import ConsumerEvent, SnapshotComplete, WindowHandled
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import BATCH_SEQ_NO, STREAM_ID, TIME
from cdc_reader.decoding import Entries
from cdc_reader.metrics import (
    CHANGES,
    CHECKPOINTS,
    GENERATION,
    HEADROOM,
    LAG,
    OUTSTANDING,
    QUERIES,
    SNAPSHOT_SECONDS_LEFT,
    SNAPSHOT_SHARE,
    WINDOW_QUERIES,
    WINDOWS,
    Recorder,
)
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import WindowComplete
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.retry import Stop
from cdc_reader.reading.snapshot import RangeComplete, SnapshotReader, SnapshotShare
from cdc_reader.streams.window import Window

log = get_logger(__name__)

_SECOND = 1_000_000


class Reading(Protocol):
    """The facts that a `Follower` or a `SnapshotReader` provides about the log while it reads."""

    @property
    def first(self) -> Micros | None: ...

    @property
    def ttls(self) -> TtlHistory: ...

    def with_table_facts(self, checkpoint: Checkpoint) -> Checkpoint: ...


class InFlightPage:
    """A page of changes, or a part of one, until all of its changes are acknowledged.

    If the changes are rows of a snapshot, `reading` is their `SnapshotRows.reading`.
    """

    def __init__(self, changes: Entries[Change], part: range, reading: int | None = None) -> None:
        page: ChangePage = changes.page
        self.changes = changes
        self.part = part
        self.rows = _rows(page, part) if reading is None else reading
        """The log rows of the changes, or the value of `SnapshotRows.reading`."""
        self.size: int = page.log.batch.nbytes * len(part) // len(changes)
        """The number of bytes that count as in flight until the last change is acknowledged."""
        self.left = len(part)
        """The number of changes that are not acknowledged."""

    def divided(self, workers: int) -> dict[int, Indices]:
        """Return, for each worker, the indices within `part` of the changes that it handles.

        All changes of one partition key go to the same worker.
        """
        numbers = np.arange(len(self.part))
        if workers == 1:
            return {0: numbers}
        page: ChangePage = self.changes.page
        owners = page.partition_hashes[self.part.start : self.part.stop] % np.uint64(workers)
        shares = ((worker, numbers[owners == worker]) for worker in range(workers))
        return {worker: share for worker, share in shares if len(share)}


def _rows(page: ChangePage, part: range) -> InFlightRows:
    batch, changes = page.log.batch, page.change_rows
    if len(part) < changes.count:
        rows, changes = changes.part(part)
        batch = batch.select([STREAM_ID, TIME, BATCH_SEQ_NO]).take(to_arrow(rows))
    return InFlightRows(batch, changes)


class Share:
    """The changes of a page that one worker handles, in order.

    Only the worker sets `handled`, without a lock; `TableProgress` reads it when needed.
    """

    def __init__(self, progress: TableProgress, page: InFlightPage, numbers: Indices) -> None:
        self.progress = progress
        self.page = page
        self.count = len(numbers)
        self.handled = 0
        """The number of changes that have been handled."""
        self._numbers = numbers
        self._taken = 0

    def __iter__(self) -> Iterator[Change]:
        """Yield the changes; each is made when it is requested."""
        numbers = self._numbers + self.page.part.start
        return map(self.page.changes.__getitem__, numbers.tolist())

    @property
    def has_undecoded(self) -> bool:
        """Whether a change of the page has values that could not be decoded."""
        page: ChangePage = self.page.changes.page
        return page.has_undecoded

    @property
    def is_taken(self) -> bool:
        """Whether `take` has returned all of the changes."""
        return self._taken == self.count

    def take(self) -> Indices:
        """Return the indices of the changes that were handled since the last call."""
        first, self._taken = self._taken, self.handled
        return self._numbers[first : self._taken]


class TableProgress:
    """Tracks a table's delivered and acknowledged changes, and saves checkpoints from `start` on.

    This class is thread-safe. Changes count toward `limit` as long as they must be remembered.

    `now` returns the cluster's time without a query. `wake` is called when a window is complete,
    and when everything has been read and acknowledged. `on_event` is called when a snapshot is
    complete, and when a window is handled.
    """

    def __init__(
        self,
        lease: Lease,
        start: Checkpoint,
        reading: Reading,
        *,
        limit: InFlightLimit,
        settled: bool,
        now: Callable[[], Micros],
        recorder: Recorder,
        on_event: Callable[[ConsumerEvent], None],
        wake: Callable[[], None],
    ) -> None:
        self.lease = lease
        self.saved = start
        """The last checkpoint that was saved."""
        self._reading = reading
        self._limit = limit
        self._now = now
        self._recorder = recorder
        self._on_event = on_event
        self._wake = wake
        self._work = Acknowledgements(start, settled=settled)
        self._ranges = None if start.snapshot is None else RangeAcknowledgements(start)
        self._acknowledged = threading.Event()
        self._windows: deque[Window] = deque()
        self._outstanding = 0
        self._shares: set[Share] = set()
        """The shares with changes that are not acknowledged."""
        self._is_read = self._is_left_out = False
        self._lock, self._reporting, self._saving = (threading.Lock() for _ in range(3))

    @property
    def table(self) -> TableName:
        """The base table."""
        return self.lease.name.table

    @property
    def is_finished(self) -> bool:
        """True once everything has been read and acknowledged."""
        return self._is_read and not self._outstanding

    def deliver(self, page: InFlightPage, workers: int) -> dict[int, Share]:
        """Register the next changes, in order, and return each worker's share for delivery."""
        shares = {
            worker: Share(self, page, numbers) for worker, numbers in page.divided(workers).items()
        }
        with self._lock:
            self._outstanding += page.left
            self._shares.update(shares.values())
            if isinstance(page.rows, InFlightRows):
                self._work.deliver(page.rows)
            elif self._ranges is not None:
                self._ranges.deliver(page.rows, page.left)
        self.show()
        return shares

    def complete_range(self, read: RangeComplete) -> None:
        """Record that a range of a snapshot has been read to its end."""
        with self._lock:
            is_done = self._ranges is not None and self._ranges.complete(read)
        if is_done:
            self._wake()

    def complete_snapshot(self, complete: Checkpoint, stop: Stop) -> bool:
        """Wait until all rows of a snapshot are acknowledged, then save the checkpoint `complete`.

        Until then, no change of the log may be delivered. If `stop` is set, returns False without
        saving.
        """
        with stop.calling(self._acknowledged.set):
            while self._outstanding and not stop.is_set():
                self._acknowledged.wait()
                self._acknowledged.clear()
        if stop.is_set():
            return False
        self._on_event(SnapshotComplete(self.table, complete.position))
        with self._saving:
            self.lease.save(complete)
            with self._lock:
                self._ranges = None
        self._recorder.add(CHECKPOINTS, self.table)
        self._show_share(SnapshotShare(0, 1.0, 0.0))
        log.info("snapshot_complete", table=str(self.table))
        return True

    def follow(self, reading: Reading) -> None:
        """Record that `reading` reads the log from now on."""
        self._reading = reading

    def complete(self, read: WindowComplete) -> None:
        """Record that a window has been read to its end."""
        self._recorder.add(WINDOWS, self.table)
        self._recorder.add(QUERIES, self.table, read.queries)
        self._recorder.set(WINDOW_QUERIES, self.table, read.queries)
        if read.checkpoint.generation is not None:
            self._recorder.set(GENERATION, self.table, read.checkpoint.generation / _SECOND)
        with self._lock:
            self._enqueue(self._work.complete(read.checkpoint, None if read.late else read.window))
        self._report_windows()

    def acknowledge(self, share: Share) -> None:
        """Record which changes of a share are handled, and report completed windows."""
        with self._lock:
            count = self._acknowledge(share)
        self._tell(count)
        self._report_windows()

    def acknowledge_all(self) -> None:
        """Record which changes have been handled so far, without reporting completed windows.

        Workers report windows when they acknowledge their shares.
        """
        with self._lock:
            count = sum(map(self._acknowledge, [*self._shares]))
        self._tell(count)

    def finish(self) -> None:
        """Record that the read has ended."""
        self._is_read = True
        self._wake()

    def leave_out(self) -> None:
        """Record that the table is read no more, and therefore falls no further behind."""
        self._is_left_out = True
        self.finish()

    def save(self) -> None:
        """Save the progress since the last save, if there is any."""
        with self._saving:
            with self._lock:
                checkpoint = (self._ranges or self._work).take()
            if checkpoint is None:
                return
            self.lease.save(self._reading.with_table_facts(checkpoint))
            self.saved = checkpoint
        self._recorder.add(CHECKPOINTS, self.table)
        self.show()
        log.debug("checkpoint_saved", table=str(self.table), position=checkpoint.position)

    def show(self) -> None:
        """Set the gauges; lag and headroom change even while nothing is read."""
        self._recorder.set(OUTSTANDING, self.table, self._outstanding)
        if isinstance(self._reading, SnapshotReader):
            self._show_share(self._reading.share)
        if self._is_left_out or (position := self._oldest_unread()) is None:
            return
        now, ttls = self._now(), self._reading.ttls
        self._recorder.set(LAG, self.table, max(0, now - position) / _SECOND)
        if ttls.changes:
            expires = ttls.expires(position)
            left = math.inf if expires == FOREVER else (expires - now) / _SECOND
            self._recorder.set(HEADROOM, self.table, left)

    def _show_share(self, read: SnapshotShare) -> None:
        left = math.nan if read.seconds_left is None else read.seconds_left
        self._recorder.set(SNAPSHOT_SHARE, self.table, read.share)
        self._recorder.set(SNAPSHOT_SECONDS_LEFT, self.table, left)

    def _oldest_unread(self) -> Micros | None:
        """Return the write time, in µs, before which all rows have been read; None if unknown."""
        position = self._work.position
        return position if position > BEGINNING else self._reading.first

    def _acknowledge(self, share: Share) -> int:
        """Record which changes of a share are handled; return their number."""
        page, numbers = share.page, share.take()
        if not (count := len(numbers)):
            return 0
        self._outstanding -= count
        page.left -= count
        self._limit.leave(self._forget(page.rows, numbers), 0 if page.left else page.size)
        if share.is_taken:
            self._shares.remove(share)
        return count

    def _forget(self, rows: InFlightRows | int, numbers: Indices) -> int:
        """Record that changes are handled; return how many no longer need to be remembered."""
        if isinstance(rows, InFlightRows):
            held = self._work.held
            self._enqueue(self._work.acknowledge(rows, numbers))
            return held - self._work.held
        if self._ranges is not None and self._ranges.acknowledge(rows, len(numbers)):
            self._wake()
        return len(numbers)

    def _tell(self, count: int) -> None:
        """Count acknowledged changes, and wake waiting threads if none are outstanding."""
        if count:
            self._recorder.add(CHANGES, self.table, count)
        if not self._outstanding:
            self._acknowledged.set()
        if self.is_finished:
            self._wake()

    def _enqueue(self, window: Window | None) -> None:
        if window is not None:
            self._windows.append(window)

    def _report_windows(self) -> None:
        """Report completed windows, one thread at a time, so that the reports are in order."""
        while self._windows:
            with self._reporting:
                if self._windows:
                    self._reached(self._windows.popleft())

    def _reached(self, window: Window) -> None:
        self._wake()
        self._on_event(WindowHandled(self.table, window))
