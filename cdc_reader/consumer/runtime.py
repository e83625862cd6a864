"""Runs a consumer: a reading thread for each table, and a thread that saves checkpoints.

Readers wait while too many changes are in flight, so memory use is bounded, however slow the
handler is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from cdc_reader._time import BEGINNING, FOREVER, Micros, duration_micros
from cdc_reader.changes.change import Change
from cdc_reader.changes.grouping import TableChanges
from cdc_reader.checkpoints.lease import Lease
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.config import DeliveryMode, SnapshotMode, refresh_interval
from cdc_reader.consumer.admission import InFlightLimit, TablesInOrder
from cdc_reader.consumer.events import ConsumerEvent, RowsLost, SnapshotBegins
from cdc_reader.consumer.handling import check_done
from cdc_reader.consumer.leases import Leases, RetryingCheckpoints
from cdc_reader.consumer.lifecycle import Lifecycle
from cdc_reader.consumer.readers import TableReaders
from cdc_reader.consumer.snapshot_start import snapshot_start
from cdc_reader.consumer.subscription import Subscription
from cdc_reader.consumer.table_progress import InFlightPage, Share, TableProgress
from cdc_reader.cql.discovery import Discovery
from cdc_reader.cql.names import TableName
from cdc_reader.decoding import Entries
from cdc_reader.errors import (
    CdcError,
    CheckpointError,
    ConfigurationError,
    HandlerError,
    LeaseLostError,
    PermissionDeniedError,
    SchemaError,
    StoppedError,
)
from cdc_reader.metrics import (
    CHECKPOINT_RETRIES,
    HANDLER_ERRORS,
    LATE_ROWS,
    LOSSES,
    RETRIES,
    ROWS,
    SNAPSHOT_ROWS,
)
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete
from cdc_reader.reading.follower import Follower
from cdc_reader.reading.loss import warn_of_loss
from cdc_reader.reading.retry import Stop
from cdc_reader.reading.snapshot import RangeComplete, SnapshotReader, SnapshotRows
from cdc_reader.streams.window import Window
from cdc_reader.table_reader import TableReader

_MOST_CHANGES = 10_000
"""The number of changes in flight at which reading waits; bounds what is remembered of them."""
_FROM_ZERO = (LOSSES, HANDLER_ERRORS, CHECKPOINT_RETRIES)
"""Counters that are recorded as 0 at the start, so that their first event is an increase."""
_OF_A_TABLE = (SchemaError, PermissionDeniedError, ConfigurationError, CheckpointError)
"""Errors that may say why one table cannot be followed."""
_TICK = 1.0
"""Seconds between updates of the gauges, and between checks for checkpoints that are due."""


class ConsumerRuntime:
    """Passes the changes of a subscription to workers, from `start` until `close`.

    `hand_out` is called with the number of a worker, which is less than `workers`, and with the
    worker's share of a page. If `tolerant` is True, changes may have values that could not be
    decoded; otherwise, such a value ends the run. `stopping` is set as soon as the run has to end.
    `record`, `fail`, `end` and `stop` may be called from any thread.
    """

    def __init__(
        self,
        subscription: Subscription,
        workers: int,
        hand_out: Callable[[int, Share], None],
        stopping: Stop,
        *,
        tolerant: bool,
    ) -> None:
        self._stopping, self._hurry = stopping, Stop()
        self._subscription = subscription
        self._workers = workers
        self._hand_out = hand_out
        self._tolerant = tolerant
        self._recorder = subscription.metrics
        config, read = subscription.config, subscription.read
        self._limit = InFlightLimit(_MOST_CHANGES, config.max_bytes)
        tables, patterns = subscription.tables, subscription.patterns
        is_merged = read.delivery is DeliveryMode.ORDERED and (len(tables) > 1 or bool(patterns))
        self._turns = TablesInOrder(tables) if is_merged else None
        self._store = RetryingCheckpoints(
            subscription.store, read.retry_deadline, self._recorder, self._hurry
        )
        self._readers = TableReaders(subscription, stopping)
        self._discovery = Discovery(tables)
        self._is_looking = bool(patterns)
        """Whether more tables may be found, so that the run does not end without them."""
        self._leases = Leases(self._store, config, stopping)
        self.saves_each = not config.checkpoint_interval
        """Whether a checkpoint is saved after each change."""
        self._lifecycle = Lifecycle(self._facts())
        self._progress: dict[TableName, TableProgress] = {}
        self._threads: list[threading.Thread] = []
        self._to_save = threading.Event()
        self._starting, self._is_closed = threading.Lock(), False
        self._errors: list[BaseException] = []

    def start(self) -> None:
        """Begin to read each table, at its checkpoint or else at the subscription's start."""
        with self._starting:
            if not self._is_closed:
                with suppress(StoppedError):
                    self._start()

    def wait(self) -> None:
        """Wait until everything has been read and acknowledged, or until the run has to end."""
        self._stopping.wait()

    @property
    def has_ended(self) -> bool:
        """Whether the run has to end, so that no further change may be handled."""
        return self._stopping.is_set()

    def permits(self, share: Share) -> bool:
        """Return True if the share's next change may be handled; False if the run has to end.

        Waits while another consumer may hold the lease.
        """
        return self._leases.wait_for(share.progress.lease) and not self.has_ended

    def record(self, share: Share) -> None:
        """Acknowledge the share's handled changes; if `saves_each` is True, save a checkpoint.

        The worker must call this after each change if `saves_each` is True, and otherwise after the
        share's last change. Between calls, the checkpoint thread acknowledges the changes that
        `Share.handled` counts.
        """
        share.progress.acknowledge(share)
        if self.saves_each:
            self._save_one(share.progress)

    def fail(self, error: BaseException) -> None:
        """End the run. `close` then raises this error, or an earlier one if one was recorded."""
        self._errors.append(error)
        self.end()

    def stop(self) -> None:
        """Stop the delivery of changes, and do not wait for a failing store."""
        self._hurry.set()
        self.end()

    def end(self) -> None:
        """Stop the delivery of changes."""
        self._stopping.set()
        self._limit.close()
        if self._turns is not None:
            self._turns.close()
        self._readers.stop()
        self._to_save.set()

    def close(self) -> None:
        """End the run, save the acknowledged progress, and join the threads.

        Raises the first failure of the run. Handlers must have ended, because later acknowledgments
        are not saved. Waits for a `start` that is running in another thread.
        """
        self.end()
        with self._starting:
            self._is_closed = True
        self._save()
        self._leases.end()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        if not self._store.is_broken:
            self._leases.release()
        if self._subscription.checkpoints is None:
            self._store.close()
        self._readers.close()
        if self._threads:
            self._lifecycle.stopped({each.table: each.saved for each in self._all_progress})
        if self._errors:
            raise self._errors[0]

    def _start(self) -> None:
        named, patterns = self._subscription.named, self._subscription.patterns
        looked = self._readers.now() if patterns else BEGINNING
        found = self._readers.look(self._discovery)
        if not self._leases.acquire(map(self._name, (*named, *found))):
            return
        now = self._readers.now()
        end = self._subscription.last_position(now)
        for table in named:
            self._follow(table, now, end)
        for table in found:
            self._follow_found(table, now, end)
        self._spawn("cdc-checkpoints", self._save_often)
        self._spawn("cdc-leases", self._leases.keep)
        if patterns:
            self._spawn("cdc-tables", partial(self._look_often, looked, now, end))
        for thread in [*self._threads]:
            thread.start()

    def _name(self, table: TableName) -> CheckpointName:
        subscription = self._subscription
        return CheckpointName(subscription.application, table, str(subscription.shard))

    def _follow(self, name: TableName, now: Micros, end: Micros) -> threading.Thread:
        """Begin to read a table; return the thread that will read it."""
        table = self._readers.open(name)
        progress, reading = self._begin(table, now)
        self._progress[name] = progress
        if self._stopping.is_set():
            table.stop()  # its read was set up after `stop` was called
        read = partial(self._read, progress, table, reading, end)
        return self._spawn(f"cdc-read-{name}", partial(self._read_or_leave_out, name, read))

    def _follow_found(self, name: TableName, now: Micros, end: Micros) -> threading.Thread | None:
        """Begin to read a table that a pattern found, or leave it out."""
        self._discovery.take(name)
        if self._turns is not None:
            self._turns.add(name)
        try:
            return self._follow(name, now, end)
        except _OF_A_TABLE as error:
            self._leave_out(name, error)
            return None

    def _leave_out(self, name: TableName, error: CdcError) -> None:
        """Go on without a table; raise the error if the table was named, or is not the reason."""
        is_named = name in self._subscription.named
        if is_named or isinstance(error, LeaseLostError) or self._store.is_broken:
            raise error
        if name in self._progress:
            self._progress[name].leave_out()
        self._discovery.leave_out(name, error)
        self._reach(name, FOREVER)

    def _look_often(self, looked: Micros, now: Micros, end: Micros) -> None:
        """Follow tables as they appear, until all that may have changes before `end` are found.

        A table that a look does not find has no settled change at the time of that look, `looked`.
        """
        read = self._subscription.read
        interval, confidence = refresh_interval(read), duration_micros(read.confidence_window)
        with suppress(StoppedError):
            while (reached := looked - confidence) < end:
                for pattern in self._discovery.patterns:
                    self._reach(pattern, reached)
                self._readers.clock.sleep(interval, self._stopping)
                looked = self._readers.now()
                self._look(now, end)
            for pattern in self._discovery.patterns:
                self._reach(pattern, FOREVER)
            self._is_looking = False
            self._wake()

    def _look(self, now: Micros, end: Micros) -> None:
        """Follow the tables that have appeared, except for those that other consumers follow."""
        for name in self._readers.look(self._discovery):
            if not self._leases.take(self._name(name)):
                continue
            if (thread := self._follow_found(name, now, end)) is not None:
                self._lifecycle.joined(name)
                thread.start()

    def _begin(
        self, table: TableReader, now: Micros
    ) -> tuple[TableProgress, Follower | SnapshotReader]:
        """Begin to read a table at its checkpoint, or at a new initial position.

        A new position is saved first, so that a restart begins there too.
        """
        subscription = self._subscription
        lease = self._leases[table.name]
        for counter in _FROM_ZERO:
            self._recorder.add(counter, table.name, 0)
        if is_new := (start := lease.load()) is None:
            start = self._first(table, lease.name, now)
            self._save_first(lease, start)
        elif subscription.takes_new_snapshots and not (lost := table.lost(start)).is_empty:
            warn_of_loss(lost, table.name)
            self._recorder.add(LOSSES, table.name, 1)
            start, is_new = table.begin_snapshot(), True
            self._save_first(lease, start, lost)
        self._lifecycle.begins(table.name, start, is_saved=not is_new)
        self._reach(table.name, start.position)
        reading = self._reading(table, start)
        progress = TableProgress(
            lease,
            start,
            reading,
            limit=self._limit,
            settled=subscription.read.delivery is not DeliveryMode.EAGER,
            now=self._readers.clock.estimate,
            recorder=self._recorder,
            on_event=self._report,
            wake=self._wake,
        )
        progress.show()
        return progress, reading

    def _save_first(self, lease: Lease, start: Checkpoint, lost: Window | None = None) -> None:
        """Save a table's initial checkpoint; if it has a snapshot, report the snapshot first."""
        if start.snapshot is not None:
            self._report(SnapshotBegins(lease.name.table, start.position, lost))
        lease.save(start)

    def _first(self, table: TableReader, name: CheckpointName, now: Micros) -> Checkpoint:
        """Return the initial checkpoint of a table that has no saved checkpoint."""
        subscription = self._subscription
        if subscription.snapshot is SnapshotMode.NONE:
            return table.begin(subscription.first_position(now))
        if subscription.shard.is_whole:
            return table.begin_snapshot()
        return snapshot_start(
            name, self._store, subscription.config, self._stopping, table.begin_snapshot
        )

    def _reading(self, table: TableReader, start: Checkpoint) -> Follower | SnapshotReader:
        """Return the reader that continues from `start`.

        Raises CheckpointError if `start` has a snapshot and the subscription takes no snapshots.
        """
        subscription = self._subscription
        if start.snapshot is None:
            return self._follower(table, start)
        if subscription.snapshot is SnapshotMode.NONE and not subscription.takes_new_snapshots:
            raise CheckpointError(
                f"snapshot is 'none', and the snapshot of {table.name} that application "
                f"{subscription.application!r} began is not complete: give 'initial' to "
                "continue it, or start under another application name"
            )
        count = self._retries_of(table)
        return table._snapshot_reader(start, count, tolerant=self._tolerant)  # noqa: SLF001 - only the consumer monitors it

    def _follower(self, table: TableReader, start: Checkpoint) -> Follower:
        def report(lost: Window) -> None:
            self._recorder.add(LOSSES, table.name, 1)
            self._report(RowsLost(table.name, lost))

        count = self._retries_of(table)
        return table._follower(start, report, count, tolerant=self._tolerant)  # noqa: SLF001 - as above

    def _retries_of(self, table: TableReader) -> Callable[[], None]:
        def count() -> None:
            self._recorder.add(RETRIES, table.name)
            self._lifecycle.failed(table.name)

        return count

    def _report(self, event: ConsumerEvent) -> None:
        """Call `on_event`, if given; raise HandlerError if it fails."""
        if (on_event := self._subscription.on_event) is None:
            return
        try:
            returned = on_event(event)
        except Exception as error:
            raise HandlerError(f"on_event of {event.table} failed: {error!r}") from error
        check_done("on_event", returned)

    def _spawn(self, name: str, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        self._threads.append(thread)
        return thread

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - `close` raises it
            self.fail(error)

    def _read_or_leave_out(self, name: TableName, read: Callable[[], None]) -> None:
        try:
            read()
        except _OF_A_TABLE as error:
            self._leave_out(name, error)

    def _read(
        self,
        progress: TableProgress,
        table: TableReader,
        reading: Follower | SnapshotReader,
        end: Micros,
    ) -> None:
        if isinstance(reading, SnapshotReader):
            if not self._take_rows(progress, reading):
                return
            reading = self._follower(table, reading.complete)
            progress.follow(reading)
            if self._stopping.is_set():
                return  # the follower may have been made after the reader was stopped
        self._take(progress, reading.follow(end))

    def _take_rows(self, progress: TableProgress, reader: SnapshotReader) -> bool:
        """Deliver the rows of a snapshot; return True if all of them are acknowledged."""
        from cdc_reader.changes.snapshot import SnapshotChanges

        changes = SnapshotChanges()
        with suppress(StoppedError):
            for delivery in reader.deliveries():
                self._lifecycle.succeeded(delivery.table)
                if isinstance(delivery, SnapshotRows):
                    self._recorder.add(SNAPSHOT_ROWS, delivery.table, delivery.batch.num_rows)
                for rows in filter(len, changes.each(delivery)):
                    page = InFlightPage(rows, range(len(rows)), delivery.reading)
                    self._let_in(progress, page)
                if self._stopping.is_set():
                    return False
                if isinstance(delivery, RangeComplete):
                    progress.complete_range(delivery)
            return progress.complete_snapshot(reader.complete, self._stopping)
        return False

    def _take(self, progress: TableProgress, deliveries: Iterator[Delivery]) -> None:
        grouping = TableChanges()
        for delivery in deliveries:
            self._lifecycle.succeeded(delivery.table)
            if isinstance(delivery, RowsRead):
                self._count(delivery)
            for changes in filter(len, grouping.each(delivery)):
                self._deliver(progress, changes, is_late=delivery.late)
            if self._stopping.is_set():
                return
            if isinstance(delivery, WindowComplete):
                self._recorder.add(LATE_ROWS, delivery.table, delivery.undelivered)
                progress.complete(delivery)
                self._reach(delivery.table, delivery.position)
        if not self._stopping.is_set():
            progress.finish()
            self._reach(progress.table, FOREVER)

    def _reach(self, table: TableName, micros: Micros) -> None:
        """Record that further changes of the table, unless late, have write times ≥ `micros`."""
        if self._turns is not None:
            self._turns.reach(table, micros)

    def _deliver(self, progress: TableProgress, changes: Entries[Change], *, is_late: bool) -> None:
        """Deliver the changes in the order of all tables, or immediately if they are late."""
        if self._turns is None or is_late:
            self._let_in(progress, InFlightPage(changes, range(len(changes))))
            return
        for part in self._turns.parts(progress.table, changes.page.timestamps.tolist()):
            self._let_in(progress, InFlightPage(changes, part))

    def _let_in(self, progress: TableProgress, page: InFlightPage) -> None:
        """Wait until the limits admit a page, and hand it out to the workers."""
        if self._limit.enter(page.left, page.size):
            for worker, share in progress.deliver(page, self._workers).items():
                self._hand_out(worker, share)

    def _count(self, read: RowsRead) -> None:
        self._recorder.add(ROWS, read.table, read.batch.num_rows)
        if read.late:
            self._recorder.add(LATE_ROWS, read.table, read.batch.num_rows)

    def _save_often(self) -> None:
        """Save the progress after each window, and whenever the checkpoint interval has passed."""
        self._lifecycle.started(self._subscription.store)  # here, where it delays no row
        interval = self._subscription.config.checkpoint_interval.total_seconds()
        due = time.monotonic() + interval
        while not self._stopping.is_set():
            reached = self._to_save.wait(_TICK)
            self._to_save.clear()
            for progress in self._all_progress:
                progress.acknowledge_all()
                progress.show()
            if reached or time.monotonic() >= due:
                self._save()
                due = time.monotonic() + interval
            self._stopping.wait(min(interval, _TICK))

    def _save(self) -> None:
        for progress in self._all_progress:
            progress.acknowledge_all()
            if self._store.is_broken:
                return  # a retry would fail too
            try:
                self._save_one(progress)
            except Exception as error:  # noqa: BLE001 - `close` raises it
                self.fail(error)

    def _save_one(self, progress: TableProgress) -> None:
        try:
            progress.save()
        except StoppedError as error:
            raise CheckpointError(
                f"stopped before the checkpoint of {progress.table} was saved: changes handled "
                f"since the last one will be delivered again; {error.__cause__ or error}"
            ) from error

    def _facts(self) -> dict[str, str]:
        subscription = self._subscription
        facts = {
            "application": subscription.application,
            "tables": ", ".join(map(str, subscription.tables)),
        }
        return facts if subscription.shard.is_whole else {**facts, "shard": str(subscription.shard)}

    def _wake(self) -> None:
        """Save soon what has been reached; end the run if nothing is left to read and handle."""
        self._to_save.set()
        if not self._is_looking and all(each.is_finished for each in self._all_progress):
            self.end()

    @property
    def _all_progress(self) -> list[TableProgress]:
        """The progress of each table; another thread may add tables."""
        return [*self._progress.values()]
