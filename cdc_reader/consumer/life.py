"""One run of a consumer: from its leases to its end, or until another consumer takes over."""

from __future__ import annotations

from cdc_reader.consumer.handling import DeadLetter, Handler, Handling
from cdc_reader.consumer.runtime import ConsumerRuntime, InFlightChange
from cdc_reader.consumer.subscription import Subscription
from cdc_reader.consumer.workers import Workers
from cdc_reader.cql.names import TableName
from cdc_reader.reading.retry import Stop


class Life:
    """Follows a subscription, and has workers call the handler; `run` once, `stop` at any time."""

    def __init__(
        self, subscription: Subscription, handler: Handler, dead_letter: DeadLetter | None
    ) -> None:
        config, stopping = subscription.config, Stop()
        self._following = ConsumerRuntime(subscription, self._hand_out, stopping)
        self._handling = Handling(handler, dead_letter, config, subscription.metrics)
        self._workers = Workers(config.workers, self._work, stopping)

    def run(self) -> None:
        """Follow to the end; raises the first failure once the changes in hand are dealt with."""
        try:
            self._following.start()
            self._workers.start()
            self._following.wait()
        finally:
            self._following.end()
            self._workers.join()
            self._following.close()

    def stop(self) -> None:
        """Make `run` return once the running handlers have."""
        self._following.stop()

    def _hand_out(self, handed: list[InFlightChange]) -> None:
        self._workers.put(handed, _key)

    def _work(self, handed: InFlightChange) -> None:
        try:
            if self._following.permits(handed) and self._handling.handle(handed.change):
                self._following.acknowledge(handed)
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            self._following.fail(error)


def _key(handed: InFlightChange) -> tuple[TableName, str]:
    """The key as text: a key that holds NaN is not equal to itself."""
    return handed.change.table, repr(handed.change.partition_key)
