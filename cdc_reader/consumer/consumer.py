"""`CdcConsumer`: a handler, called for each change of some tables."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Unpack

from cdc_reader.config import ConnectionConfig
from cdc_reader.consumer.following import Following, Handed
from cdc_reader.consumer.handling import DeadLetter, Handler, Handling
from cdc_reader.consumer.signals import stopped_by_signals
from cdc_reader.consumer.subscription import Options, Subscription
from cdc_reader.consumer.workers import Workers
from cdc_reader.ids import TableName


class CdcConsumer:
    """Follows tables, each named as ``keyspace.table``, and calls `handler` for each change.

        consumer = CdcConsumer(
            ConnectionConfig("scylla.example.com"),
            ["shop.orders"],
            print,
            application="printer",
            checkpoints=SqliteCheckpoints("printer.db"),
        )
        consumer.run()

    A change whose handler returned is acknowledged. What is acknowledged is saved under the
    name `application`, and the next consumer of that name goes on from there. After a crash the
    changes that were handled and not yet saved are handled again; none is left out.

    Changes of one partition key are handled in order; others at the same time, in the threads
    of several workers. Reading waits when too much is in hand: see `ConsumerConfig`.

    Args:
        connection: the cluster.
        tables: one or several; they share workers and limits.
        handler: called in a worker's thread; see `ConsumerConfig` for what happens if it raises.
        dead_letter: takes changes that the handler failed on, and its last error; `on_error` of
            the configuration is then not asked.
        application: names the checkpoints; one running consumer for each name, table and shard.
        start: where to begin if there is no checkpoint: ``earliest`` (the default), ``now``,
            µs since 1970 or a datetime.
        end: the write time to stop at: ``now``, µs since 1970 or a datetime; for good if None.
        checkpoints: the store, which is not closed; in memory by default.
        config: how changes are handed out.
        read: how the log is read.
        shard: the part of the tables to follow, such as ``2/4``, where several processes share.
        on_window: called when all changes of a window are acknowledged, an empty window's too.
        clock: another than the system's, for tests.
        metrics: who is told the figures; see `cdc_reader.metrics`.

    Raises ConfigurationError for values that cannot be used.
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        tables: str | Iterable[str | TableName],
        handler: Handler,
        *,
        dead_letter: DeadLetter | None = None,
        **options: Unpack[Options],
    ) -> None:
        subscription = Subscription(connection=connection, tables=tables, **options)
        config, stopping = subscription.config, threading.Event()
        self._following = Following(subscription, self._hand_out, stopping)
        self._handling = Handling(handler, dead_letter, config, subscription.metrics, stopping)
        self._workers = Workers(config.workers, self._work, stopping)
        self._has_run = False

    def run(self) -> None:
        """Follow until `stop`, to the end position, or until something fails; once.

        In the main thread SIGTERM and SIGINT stop it too. However it ends, handlers under way
        are waited for, and what is acknowledged is saved. Raises HandlerError, and the errors
        of reading and of the store of checkpoints.
        """
        if self._has_run:
            raise RuntimeError("this consumer has run: make another one")
        self._has_run = True
        with stopped_by_signals(self.stop):
            try:
                self._following.start()
                self._workers.start()
                self._following.wait()
            finally:
                self._following.stop()
                self._workers.join()
                self._following.close()

    def stop(self) -> None:
        """Have `run` return once the handlers under way have; from any thread, handlers too.

        Changes that wait for a handler are left to the next run.
        """
        self._following.stop()

    def _hand_out(self, handed: list[Handed]) -> None:
        self._workers.put(handed, _key)

    def _work(self, handed: Handed) -> None:
        try:
            if self._handling.handle(handed.change):
                self._following.acknowledge(handed)
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self._following.fail(error)


def _key(handed: Handed) -> tuple[TableName, str]:
    """By text: a key that holds NaN is not equal to itself."""
    return handed.change.table, repr(handed.change.partition_key)
