"""Tracks one table's changes in flight, and reports and saves its progress."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, Self

from attrs import define

from cdc_reader._log import get_logger
from cdc_reader._time import BEGINNING, FOREVER, Micros
from cdc_reader.changes.change import Change
from cdc_reader.checkpoints.acknowledgement import Acknowledgements, InFlightRows
from cdc_reader.checkpoints.lease import Lease
from cdc_reader.checkpoints.ranges import RangeAcknowledgements
from cdc_reader.consumer.admission import Reservation
from cdc_reader.consumer.events import ConsumerEvent, SnapshotComplete
from cdc_reader.consumer.handling import check_done
from cdc_reader.cql.names import TableName
from cdc_reader.errors import HandlerError
from cdc_reader.metrics import (
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
from cdc_reader.reading.delivery import WindowComplete
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.progress import Checkpoint
from cdc_reader.reading.retry import Stop
from cdc_reader.reading.snapshot import RangeComplete, SnapshotReader, SnapshotShare
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window

log = get_logger(__name__)

_SECOND = 1_000_000

_NO_STREAM = StreamId(bytes(16))

OnWindow = Callable[[TableName, Window], None]
"""Called for each window in order, even an empty one, once its changes are acknowledged."""


class Reading(Protocol):
    """The facts that a `Follower` or a `SnapshotReader` provides about the log while it reads."""

    @property
    def first(self) -> Micros | None: ...

    @property
    def ttls(self) -> TtlHistory: ...

    def with_table_facts(self, checkpoint: Checkpoint) -> Checkpoint: ...


@define(eq=False)
class InFlightChange(InFlightRows):
    """A change that is handed out, until it is acknowledged.

    `progress` is its table's progress, and `page` holds its reservation.
    """

    change: Change
    progress: TableProgress
    page: Reservation
    reading: int = 0
    """`SnapshotRows.reading` of a snapshot's row; 0 for changes of the log."""

    @classmethod
    def of(cls, change: Change, progress: TableProgress, page: Reservation) -> Self:
        """Register a change as in flight."""
        of_record = change.stream, change.time.bytes, change.seqs, change.is_last
        return cls(*of_record, change, progress, page)

    @classmethod
    def of_snapshot(
        cls, change: Change, progress: TableProgress, page: Reservation, reading: int
    ) -> Self:
        """Register a snapshot's row as in flight; it has no position in the log."""
        return cls(_NO_STREAM, b"", (), True, change, progress, page, reading)


class TableProgress:
    """Tracks a table's delivered and acknowledged changes, and saves checkpoints from `start` on.

    Thread safe.

    `now` returns the cluster's time without a query. `wake` is called when a window is complete,
    and when everything has been read and acknowledged; `on_event` when a snapshot is complete.
    """

    def __init__(
        self,
        lease: Lease,
        start: Checkpoint,
        reading: Reading,
        *,
        settled: bool,
        now: Callable[[], Micros],
        recorder: Recorder,
        on_window: OnWindow | None,
        on_event: Callable[[ConsumerEvent], None],
        wake: Callable[[], None],
    ) -> None:
        self.lease = lease
        self._reading = reading
        self._now = now
        self._recorder = recorder
        self._on_window = on_window
        self._on_event = on_event
        self._wake = wake
        self._work = Acknowledgements(start, settled=settled)
        self._ranges = None if start.snapshot is None else RangeAcknowledgements(start)
        self._acknowledged = threading.Event()
        self._windows: deque[Window] = deque()
        self._outstanding = 0
        self._is_read = False
        self._lock, self._reporting, self._saving = (threading.Lock() for _ in range(3))

    @property
    def table(self) -> TableName:
        """The base table."""
        return self.lease.name.table

    @property
    def is_finished(self) -> bool:
        """True once everything has been read and acknowledged."""
        return self._is_read and not self._outstanding

    def deliver(self, changes: Sequence[Change], page: Reservation) -> list[InFlightChange]:
        """Register the changes of a page, in order, and return them for delivery."""
        delivered = [InFlightChange.of(change, self, page) for change in changes]
        with self._lock:
            self._outstanding += len(delivered)
            for in_flight in delivered:
                self._work.deliver(in_flight)
        self.show()
        return delivered

    def deliver_rows(
        self, rows: Sequence[Change], page: Reservation, reading: int
    ) -> list[InFlightChange]:
        """Register a page of a snapshot's rows, and return them for delivery."""
        delivered = [InFlightChange.of_snapshot(row, self, page, reading) for row in rows]
        with self._lock:
            self._outstanding += len(delivered)
            if self._ranges is not None:
                self._ranges.deliver(reading, len(delivered))
        self.show()
        return delivered

    def complete_range(self, read: RangeComplete) -> None:
        """Record that a range of a snapshot has been read to its end."""
        with self._lock:
            is_done = self._ranges is not None and self._ranges.complete(read)
        if is_done:
            self._wake()

    def complete_snapshot(self, complete: Checkpoint, stop: Stop) -> bool:
        """Wait until all rows of the snapshot are acknowledged, and save that it is complete.

        Until then, no change of the log may be delivered. On `stop`, returns False without saving.
        """
        with stop.waking(self._acknowledged):
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

    def acknowledge(self, in_flight: InFlightChange) -> int:
        """Record that a change is handled; return the number of changes that can be forgotten."""
        is_done = False
        with self._lock:
            if self._ranges is not None:
                is_done, freed = self._ranges.acknowledge(in_flight.reading), 1
            else:
                held = self._work.held
                self._enqueue(self._work.acknowledge(in_flight))
                freed = held - self._work.held
            self._outstanding -= 1
        if not self._outstanding:
            self._acknowledged.set()
        self._report_windows()
        if is_done or self.is_finished:
            self._wake()
        return freed

    def finish(self) -> None:
        """Record that the read has ended."""
        self._is_read = True
        self._wake()

    def save(self) -> None:
        """Save the progress since the last save, if there is any."""
        with self._saving:
            with self._lock:
                checkpoint = (self._ranges or self._work).take()
            if checkpoint is None:
                return
            self.lease.save(self._reading.with_table_facts(checkpoint))
        self._recorder.add(CHECKPOINTS, self.table)
        self.show()
        log.debug("checkpoint_saved", table=str(self.table), position=checkpoint.position)

    def show(self) -> None:
        """Set the gauges; lag and headroom change even while nothing is read."""
        self._recorder.set(OUTSTANDING, self.table, self._outstanding)
        if isinstance(self._reading, SnapshotReader):
            self._show_share(self._reading.share)
        if (position := self._oldest_unread()) is None:
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

    def _enqueue(self, window: Window | None) -> None:
        if window is not None:
            self._windows.append(window)

    def _report_windows(self) -> None:
        """Report completed windows, one thread at a time, so that they are in order."""
        while self._windows:
            with self._reporting:
                if self._windows:
                    self._reached(self._windows.popleft())

    def _reached(self, window: Window) -> None:
        self._wake()
        if self._on_window is None:
            return
        try:
            returned = self._on_window(self.table, window)
        except Exception as error:
            raise HandlerError(
                f"on_window of {self.table} failed at {window}: {error!r}"
            ) from error
        check_done("on_window", returned)
