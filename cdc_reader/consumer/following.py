"""Following tables in a thread each, and saving what is acknowledged of them in one more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from attrs import frozen

from cdc_reader.acknowledgement import Ticket
from cdc_reader.change import Change
from cdc_reader.config import DeliveryMode
from cdc_reader.consumer.budget import Budget, Lot
from cdc_reader.consumer.saving import RetryingCheckpoints
from cdc_reader.consumer.subscription import Subscription
from cdc_reader.consumer.table_progress import TableProgress
from cdc_reader.delivery import Delivery
from cdc_reader.ids import TableName
from cdc_reader.logs import get_logger
from cdc_reader.metrics import CHANGES, LATE_ROWS, RETRIES, ROWS
from cdc_reader.progress import Checkpoint, CheckpointName
from cdc_reader.reader import CdcReader
from cdc_reader.retry import observed
from cdc_reader.table_changes import TableChanges
from cdc_reader.table_reader import TableReader

log = get_logger(__name__)

_TICK = 1.0
"""Seconds between two looks at what is to be shown and saved."""


class _Stopped(Exception):
    """Ends attempts at reading."""


@frozen(eq=False)
class Handed:
    """A change that is handed out: to be given back once it is dealt with."""

    change: Change
    ticket: Ticket
    progress: TableProgress
    lot: Lot


class Following:
    """Hands the changes of a subscription to `hand_out`, from `start` until `close`.

    `stopping` is set once it is to end, whoever wants it. `acknowledge`, `fail` and `stop` may
    be called from any thread.
    """

    def __init__(
        self,
        subscription: Subscription,
        hand_out: Callable[[list[Handed]], None],
        stopping: threading.Event,
    ) -> None:
        self._stopping = stopping
        self._subscription = subscription
        self._hand_out = hand_out
        self._recorder = subscription.metrics
        config, read = subscription.config, subscription.read
        self._budget = Budget(config.max_changes, config.max_bytes)
        self._store = RetryingCheckpoints(
            subscription.checkpoints, read.retry_deadline, self._recorder
        )
        self._reader = CdcReader(
            subscription.connection,
            *subscription.tables,
            config=read,
            clock=subscription.clock,
            shard=subscription.shard,
        )
        self._saves_each = not config.checkpoint_interval
        self._progress: list[TableProgress] = []
        self._threads: list[threading.Thread] = []
        self._changed, self._to_save = threading.Event(), threading.Event()
        self._starting, self._is_closed = threading.Lock(), False
        self._errors: list[BaseException] = []

    def start(self) -> None:
        """Begin where the checkpoints say, tables without one where the subscription does."""
        with self._starting:
            if not self._is_closed:
                self._start()

    def wait(self) -> None:
        """Return when all is read and acknowledged, on `stop`, and after a failure."""
        while not self._stopping.is_set() and not all(p.is_finished for p in self._progress):
            self._changed.wait()
            self._changed.clear()

    def acknowledge(self, handed: Handed) -> None:
        """A change is dealt with."""
        self._recorder.add(CHANGES, handed.change.table)
        freed = handed.progress.acknowledge(handed.ticket)
        self._budget.leave(handed.lot, freed)
        if self._saves_each:
            handed.progress.save()

    def fail(self, error: BaseException) -> None:
        """Something cannot go on: stop, and have `close` raise it; of several the first."""
        self._errors.append(error)
        self.stop()

    def stop(self) -> None:
        """Hand out nothing more."""
        self._stopping.set()
        self._budget.close()
        self._reader.stop()
        self._wake()

    def close(self) -> None:
        """Stop, save what is acknowledged, end the threads; raises the first failure.

        Those that deal with changes should have ended before: what they acknowledge later is
        not saved. A `start` under way in another thread is waited for.
        """
        self.stop()
        with self._starting:
            self._is_closed = True
        if not self._store.is_broken:
            self._save()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._reader.close()
        log.info("stopped", **self._facts())
        if self._errors:
            raise self._errors[0]

    def _start(self) -> None:
        end = self._subscription.last_position()
        for table in self._reader.tables:
            progress, start = self._begin(table)
            deliveries = table.follow(start, end)
            self._progress.append(progress)
            self._spawn(f"cdc-read-{table.name}", partial(self._read, progress, deliveries))
        self._spawn("cdc-checkpoints", self._save_often)
        if self._stopping.is_set():
            self._reader.stop()  # for those that began to follow after `stop` was called
        for thread in self._threads:
            thread.start()
        log.info("following", **self._facts())

    def _begin(self, table: TableReader) -> tuple[TableProgress, Checkpoint]:
        """Where to begin is saved at once: a restart before the first change changes nothing."""
        subscription = self._subscription
        name = CheckpointName(subscription.application, table.name, str(subscription.shard))
        if (start := self._store.load(name)) is None:
            start = Checkpoint(subscription.first_position())
            self._store.save(name, start)
        progress = TableProgress(
            name,
            self._store,
            start,
            settled=subscription.read.delivery == DeliveryMode.SETTLED,
            clock=subscription.clock,
            recorder=self._recorder,
            on_window=subscription.on_window,
            wake=self._wake,
        )
        return progress, start

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        self._threads.append(
            threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        )

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - `close` raises it
            self.fail(error)

    def _read(self, progress: TableProgress, deliveries: Iterator[Delivery]) -> None:
        with suppress(_Stopped), observed(partial(self._ask_again, progress.table)):
            self._take(progress, deliveries)

    def _ask_again(self, table: TableName) -> None:
        """Count it; while an outage lasts, this is where stopping comes through."""
        self._recorder.add(RETRIES, table)
        if self._stopping.is_set():
            raise _Stopped

    def _take(self, progress: TableProgress, deliveries: Iterator[Delivery]) -> None:
        grouping = TableChanges()
        for delivery in deliveries:
            self._count(delivery)
            self._deliver(progress, grouping.feed(delivery), delivery)
            if self._stopping.is_set():
                return
            if delivery.complete:
                progress.complete(delivery)
        if not self._stopping.is_set():
            progress.finish()

    def _deliver(self, progress: TableProgress, changes: list[Change], delivery: Delivery) -> None:
        """Hand the changes out, once there is room for them."""
        size = 0 if delivery.batch is None else delivery.batch.nbytes
        if not changes or (lot := self._budget.enter(len(changes), size)) is None:
            return
        tickets = progress.deliver(changes)
        self._hand_out(
            [Handed(*pair, progress, lot) for pair in zip(changes, tickets, strict=True)]
        )

    def _count(self, delivery: Delivery) -> None:
        if delivery.batch is not None:
            self._recorder.add(ROWS, delivery.table, delivery.batch.num_rows)
            if delivery.late:
                self._recorder.add(LATE_ROWS, delivery.table, delivery.batch.num_rows)

    def _save_often(self) -> None:
        """When windows were reached, and every interval; yet no more than once in either."""
        interval = self._subscription.config.checkpoint_interval.total_seconds()
        due = time.monotonic() + interval
        while not self._stopping.is_set():
            reached = self._to_save.wait(_TICK)
            self._to_save.clear()
            for progress in self._progress:
                progress.show()
            if reached or time.monotonic() >= due:
                self._save()
                due = time.monotonic() + interval
            self._stopping.wait(min(interval, _TICK))

    def _save(self) -> None:
        for progress in self._progress:
            try:
                progress.save()
            except Exception as error:  # noqa: BLE001 - `close` raises it
                self.fail(error)

    def _facts(self) -> dict[str, str]:
        subscription = self._subscription
        return {
            "application": subscription.application,
            "tables": ", ".join(map(str, subscription.tables)),
            "shard": str(subscription.shard),
        }

    def _wake(self) -> None:
        self._changed.set()
        self._to_save.set()
