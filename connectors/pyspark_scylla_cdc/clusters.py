"""The clusters that a process of Spark reads from, each over one connection.

Spark reuses its Python processes, and connecting takes longer than a micro-batch, so connections
outlive the tasks that opened them.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from functools import lru_cache

from cdc_reader._time import Clock, SteadyClock
from cdc_reader.cluster import CdcTable, ClusterClock, Connection
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import LogSchema
from cdc_reader.reading.ports import LogSource

MOST = 4
"""The maximum number of clusters to stay connected to."""
LONGEST_UNUSED = 600_000_000
"""The time in µs after which a connection that is not used is closed."""
_SOURCES = 64

_Key = tuple[ConnectionConfig, ReadConfig]


class Cluster:
    """One connection, and the tables that are read over it."""

    def __init__(self, config: ConnectionConfig, read: ReadConfig) -> None:
        self.connection = Connection(config, read)
        self.clock = ClusterClock(self.connection)
        self.table = lru_cache(_SOURCES)(self._table)
        self.source = lru_cache(_SOURCES)(self._source)

    def _table(self, name: TableName) -> CdcTable:
        return CdcTable(self.connection, name)

    def _source(
        self,
        schema: LogSchema,
        limit: int | None = None,
        *,
        tolerant: bool = False,
        per_stream: bool = False,
    ) -> LogSource:
        """Return a source that reads these columns of a log, and prepares its queries only once."""
        table = self.table(schema.base.name)
        return table.source(schema, limit, tolerant=tolerant, per_stream=per_stream)


class Clusters:
    """The clusters used last; the connections to others are closed. Thread-safe.

    A connection that is closed while it is in use opens again.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SteadyClock()
        self.renew_lock()
        self._used: OrderedDict[_Key, tuple[Cluster, int]] = OrderedDict()

    def get(self, config: ConnectionConfig, read: ReadConfig) -> Cluster:
        """Return the cluster at which these settings point."""
        unused = list[Cluster]()
        with self._lock:
            now, key = self._clock.now(), (config, _of_connection(read))
            known = self._used.pop(key, None)
            cluster = Cluster(*key) if known is None else known[0]
            self._used[key] = cluster, now
            while len(self._used) > MOST or self._oldest() < now - LONGEST_UNUSED:
                _, (oldest, _) = self._used.popitem(last=False)
                unused.append(oldest)
        for each in unused:
            each.connection.close()
        return cluster

    def renew_lock(self) -> None:
        """Replace the lock, which another thread may have held when this process was forked."""
        self._lock = threading.Lock()

    def _oldest(self) -> int:
        _, used_at = next(iter(self._used.values()))
        return used_at


def _of_connection(read: ReadConfig) -> ReadConfig:
    """Return the settings that matter to a connection, so that queries share one if they can."""
    return ReadConfig(
        fetch_size=read.fetch_size,
        retry_deadline=read.retry_deadline,
        max_queries_per_second=read.max_queries_per_second,
    )


_clusters = Clusters()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_clusters.renew_lock)


def cluster_of(config: ConnectionConfig, read: ReadConfig) -> Cluster:
    """Return the cluster at which these settings point, over this process's connection."""
    return _clusters.get(config, read)
