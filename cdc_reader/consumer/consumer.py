"""`CdcConsumer` calls a handler for each change to its tables."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial
from itertools import islice

from cdc_reader._log import get_logger
from cdc_reader._time import EARLIEST, Clock, Moment
from cdc_reader.changes.change import Change
from cdc_reader.checkpoints.store import CheckpointStore
from cdc_reader.config import ConnectionConfig, ReadConfig, SnapshotMode
from cdc_reader.consumer.config import ConsumerConfig, OnHeld
from cdc_reader.consumer.events import OnEvent
from cdc_reader.consumer.handling import (
    DeadLetter,
    Handler,
    Handling,
    Together,
    Workers,
    check_functions,
)
from cdc_reader.consumer.runtime import ConsumerRuntime
from cdc_reader.consumer.signals import stopped_by_signals
from cdc_reader.consumer.subscription import Subscription
from cdc_reader.consumer.table_progress import Share
from cdc_reader.cql.names import TableName
from cdc_reader.errors import DataLossError, HandlerError, LeaseLostError
from cdc_reader.metrics import Recorder
from cdc_reader.reading.retry import Stop
from cdc_reader.streams.shard import Shard

log = get_logger(__name__)


class CdcConsumer:
    """Follows tables, each named as ``keyspace.table``, and calls `handler` for each change.

        consumer = CdcConsumer(
            "scylla.example.com",
            ["shop.orders"],
            handle,
            application="printer",
        )
        consumer.run()

    A change is acknowledged when its handler returns. Progress is saved under the name
    `application`, and the next consumer with that name resumes from there. Delivery is
    at-least-once: after a crash, changes that were handled but not yet saved are handled again.

    Changes of one partition key are handled in order; other changes are handled concurrently by
    the workers' threads. Reading waits while too many changes are in flight; see `ConsumerConfig`.

    Args:
        connection: the cluster's contact points, such as ``host:9042``, or a `ConnectionConfig`.
        tables: one or several tables, which share workers and limits, or patterns such as
            ``shop.*``, in which ``*`` is any characters of a table's name. A pattern stands for the
            tables of its keyspace that have a log, also for those that appear later: they are
            looked for at each refresh of the generations. A table that is dropped, or that cannot
            be followed (event ``table_left_out``), does not stop the others.
        handler: called in the thread that calls `run`, and in one more thread for each further
            worker; see `ConsumerConfig` for what happens if it raises.
        dead_letter: called with each change that the handler failed on, or that has values which
            cannot be decoded, and the last error; it replaces `on_error` of the configuration.
        application: the name under which progress is saved. Of the consumers with the same name,
            table and shard, only one runs at a time, and the others wait until it ends.
        start: the write time to begin at if there is no checkpoint: ``earliest`` (the default),
            ``now``, a datetime with a time zone, a string such as ``2026-11-21T05:30:00Z`` or
            ``-10m``, or µs since 1970.
        snapshot: what to begin with if there is no checkpoint; a `SnapshotMode`, or its value. With
            ``initial``, each existing row of the table is handled as a change whose operation is
            ``snapshot``. Then the log is followed from a position before the first row was read. If
            a run ends before the snapshot is complete, the next run continues with the remaining
            rows. All shards must use the same store. With ``data_loss="resnapshot"``, a consumer
            also takes a snapshot when rows expired before they were read.
        end: the write time to stop at, in the same forms as `start`; without it, the consumer runs
            until it is stopped.
        checkpoints: the checkpoint store, which the consumer does not close. The default is an
            SQLite file in the working directory, such as ``printer.db`` for the application
            ``printer``. If it cannot be written, a warning is logged when the consumer starts, and
            checkpoints are kept in memory, where they are lost when the process ends.
        config: the settings of workers, retries, checkpoints and leases.
        read: the settings of log reads.
        shard: the part of the tables to follow, such as ``2/4``, if several processes share them.
        on_event: called with a `ConsumerEvent` when all changes of a window are handled, when a
            snapshot begins or is complete, and when rows expired before they were read.
        clock: replaces the system's clock in tests.
        metrics: the recorder of metrics; see `cdc_reader.metrics`.

    Raises ConfigurationError for values that cannot be used.
    """

    def __init__(
        self,
        connection: ConnectionConfig | str,
        tables: str | TableName | Iterable[str | TableName],
        handler: Handler,
        *,
        dead_letter: DeadLetter | None = None,
        application: str,
        start: Moment = EARLIEST,
        snapshot: SnapshotMode | str = SnapshotMode.NONE,
        end: Moment | None = None,
        checkpoints: CheckpointStore | None = None,
        config: ConsumerConfig | None = None,
        read: ReadConfig | None = None,
        shard: str | Shard | None = None,
        on_event: OnEvent | None = None,
        clock: Clock | None = None,
        metrics: Recorder | None = None,
    ) -> None:
        check_functions(handler, dead_letter)
        subscription = Subscription(
            connection=connection,
            tables=tables,
            application=application,
            start=start,
            snapshot=snapshot,
            end=end,
            checkpoints=checkpoints,
            config=config,
            read=read,
            shard=shard,
            on_event=on_event,
            clock=clock,
            metrics=metrics,
        )
        self._subscription = subscription
        self._new_run = partial(_Run, subscription, handler, dead_letter)
        self._running = self._new_run()
        self._stopping, self._has_run, self._is_stopped = threading.Lock(), False, False

    def run(self) -> None:
        """Follow the tables until `stop`, the end position, or a failure. May be called only once.

        In the main thread, SIGTERM and SIGINT also stop the consumer. Before `run` returns or
        raises, it waits for running handlers and saves the acknowledged progress. Raises
        HandlerError, and errors from reading and from the checkpoint store.

        Waits while another consumer with the same name, table and shard runs, and waits again if
        another consumer took over while this process was suspended; see `ConsumerConfig.on_held`.
        """
        if self._has_run:
            raise RuntimeError("this consumer has already run: create another one")
        self._has_run = True
        try:
            with stopped_by_signals(self.stop):
                while not self._has_ended():
                    pass
        except HandlerError as error:
            raise error.with_traceback(None)  # noqa: B904 - it has its cause: the user's own error

    def stop(self) -> None:
        """Make `run` return once the running handlers have returned; any thread may call this.

        Changes that wait for a handler are left for the next run. Reading ends immediately, even
        during a retry or a request. A store call or a handler that is being retried gets one
        more attempt. `run` raises CheckpointError if the store cannot save the progress.
        """
        with self._stopping:
            self._is_stopped, running = True, self._running
        running.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._subscription}>"

    def _has_ended(self) -> bool:
        """Follow the tables to the end of a run; return False if another run must follow.

        The next run waits for the lease if another consumer took over, or begins with a new
        snapshot if rows were lost.
        """
        try:
            self._running.run()
        except LeaseLostError as error:
            with self._stopping:
                if self._is_stopped or self._subscription.config.on_held is OnHeld.FAIL:
                    raise
                self._running = self._new_run()
            log.warning("lease_lost", error=str(error))
            return False
        except DataLossError:
            with self._stopping:
                if self._is_stopped or not self._subscription.takes_new_snapshots:
                    raise
                self._running = self._new_run()
            return False
        return True


class _Run:
    """One run of a consumer, from the acquisition of its leases until it ends or loses a lease.

    Call `run` only once; `stop` may be called at any time.
    """

    def __init__(
        self, subscription: Subscription, handler: Handler, dead_letter: DeadLetter | None
    ) -> None:
        config, stopping = subscription.config, Stop()
        self._handling = Handling(handler, dead_letter, config, subscription.metrics, stopping)
        self._workers = Workers(config.workers, self._work, stopping)
        self._runtime = ConsumerRuntime(
            subscription, config.workers, self._workers.put, stopping, tolerant=True
        )

    def run(self) -> None:
        """Acquire the leases, and follow the tables to the end.

        Raises the first failure after the running handlers have ended.
        """
        try:
            self._runtime.start()
            self._workers.run()
        finally:
            self._runtime.end()
            self._workers.join()
            self._runtime.close()

    def stop(self) -> None:
        """Make `run` return once the running handlers have returned."""
        self._runtime.stop()

    def _work(self, share: Share) -> None:
        """Handle the changes of a share until a handler fails or the run has to end."""
        try:
            if isinstance(self._handling.handler, Together) and not share.has_undecoded:
                self._handle_together(self._handling.handler, share)
            else:
                self._handle_each(share, share)
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self._runtime.fail(error)

    def _handle_together(self, together: Together, share: Share) -> None:
        changes = iter(share)
        while some := list(islice(changes, together.most)):
            if not self._runtime.permits(share):
                return
            if self._handling.handle_together(together, some):
                share.handled += len(some)
                self._runtime.record(share)
            elif not self._handle_each(share, some):
                return

    def _handle_each(self, share: Share, changes: Iterable[Change]) -> bool:
        """Handle changes of a share one at a time; return False if the run has to end."""
        runtime, lease = self._runtime, share.progress.lease
        handling = self._handling
        handle = handling.handle_if_decoded if share.has_undecoded else handling.handle
        for change in changes:
            if not lease.is_sure and not runtime.permits(share):
                return False
            if runtime.has_ended or not handle(change):
                return False
            share.handled += 1
            if share.handled == share.count or runtime.saves_each:
                runtime.record(share)
        return True
