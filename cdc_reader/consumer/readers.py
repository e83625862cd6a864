"""The readers of a consumer's tables, which share a connection; tables may be added at any time."""

from __future__ import annotations

from cdc_reader._time import Micros
from cdc_reader.cluster import ClusterClock, Connection, SchemaSource
from cdc_reader.consumer.subscription import Subscription
from cdc_reader.cql.discovery import Discovery
from cdc_reader.cql.names import TableName
from cdc_reader.reading.retry import Interruption, Stop
from cdc_reader.table_reader import TableReader


class TableReaders:
    """The readers of one run. `stopping` ends the search for tables."""

    def __init__(self, subscription: Subscription, stopping: Stop) -> None:
        self._connection = Connection(subscription.connection, subscription.read)
        self.clock = ClusterClock(self._connection, subscription.clock)
        """The cluster's clock."""
        self._stopping, self._until = Interruption(stopping), Interruption(Stop())
        self._subscription = subscription
        self._readers: dict[TableName, TableReader] = {}

    def now(self) -> Micros:
        """Return the cluster's time, in µs; raise StoppedError if `stop` is called meanwhile."""
        return self.clock.interrupted_by(self._until).now()

    def look(self, discovery: Discovery) -> list[TableName]:
        """Return the tables that `discovery` finds; raise StoppedError if the run has to end."""
        queries = self._connection.interrupted_by(self._stopping)
        return discovery.look(SchemaSource(queries).logged)

    def open(self, name: TableName) -> TableReader:
        """Return a new reader of a table."""
        it = self._subscription
        reader = TableReader(
            self._connection, name, config=it.read, clock=self.clock, shard=it.shard
        )
        self._readers[name] = reader
        return reader

    def stop(self) -> None:
        """End all running reads; later ones are not affected."""
        ended, self._until = self._until, Interruption(Stop())
        ended.stop.set()
        for reader in [*self._readers.values()]:
            reader.stop()

    def close(self) -> None:
        """End all reads, and close the connection."""
        self.stop()
        self._connection.close()
