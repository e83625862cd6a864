"""Creates, resizes, expires and drops the streams of tables that use tablets."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from uuid import UUID

from attrs import define, field

from cdc_reader.cql.names import LOG_SUFFIX
from cdc_reader.testing.embedded.errors import InvalidRequest, ServerError
from cdc_reader.testing.embedded.profile import Profile
from cdc_reader.testing.embedded.schema.catalog import Catalog, Keyspace, SchemaChange
from cdc_reader.testing.embedded.schema.table import Table
from cdc_reader.testing.embedded.topology.refusals import Refusals
from cdc_reader.testing.embedded.topology.tablets import StreamHistory, StreamSet

# A table's first streams begin before its creation, so that its first writes find them.
HEAD_START_MS = 5_000
COLLECTION_INTERVAL_US = 60_000_000


@define
class TabletStreams:
    """The stream histories of all logs in keyspaces that use tablets.

    `default_tablets` returns the number of tablets for a table whose keyspace does not set it.
    `later` returns the timestamp (ms) of a new set, given the timestamp of the set before it.
    On access, but at most once a minute, sets are discarded if all their rows have expired;
    `on_discard` is called if any were.
    """

    catalog: Catalog
    source: random.Random
    clock: Callable[[], int]
    later: Callable[[int], int]
    default_tablets: Callable[[], int]
    profile: Profile = Profile()
    on_discard: Callable[[], None] = lambda: None
    _histories: dict[UUID, StreamHistory] = field(factory=dict)
    _wanted: dict[UUID, int] = field(factory=dict)
    _collected_us: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._collected_us = self.clock()

    def follow(self, _change: SchemaChange) -> None:
        """Create, split, merge or drop streams after a schema change; the catalog calls this."""
        logs = {log.id: (keyspace, log) for keyspace, log in self._logs()}
        for log_id in self._histories.keys() - logs.keys():
            del self._histories[log_id], self._wanted[log_id]
        for log_id, (keyspace, log) in logs.items():
            wanted = self._tablets(keyspace, log)
            if log_id not in self._histories:
                self._histories[log_id] = self._first(keyspace, log, wanted)
            elif wanted != self._wanted[log_id]:
                self._approach(log_id, wanted)
            self._wanted[log_id] = wanted

    def histories(self) -> tuple[StreamHistory, ...]:
        """Return the histories of all logs, including logs kept after CDC was disabled."""
        self._collect()
        return tuple(self._histories.values())

    def of(self, log: Table) -> StreamHistory:
        """Return the history of a log, which is its stream chooser.

        Raises ServerError if the log was dropped, which a node may learn late.
        """
        self._collect()
        if log.id not in self._histories:
            raise ServerError(f"Can't find a column family with UUID {log.id}")
        return self._histories[log.id]

    def split(self, keyspace: str, table: str) -> StreamSet:
        """Split each tablet of a base table in two; return the new streams."""
        history = self._of_base(keyspace, table)
        return self._resize(history, len(history.newest.streams) * 2)

    def merge(self, keyspace: str, table: str) -> StreamSet:
        """Merge pairs of tablets of a base table; raise ValueError if it has only one tablet."""
        history = self._of_base(keyspace, table)
        if len(history.newest.streams) == 1:
            raise ValueError(f"{keyspace}.{table} has one tablet: expected two or more to merge")
        return self._resize(history, len(history.newest.streams) // 2)

    def _logs(self) -> Iterator[tuple[Keyspace, Table]]:
        for keyspace in self.catalog.keyspaces.values():
            if keyspace.tablets is not None:
                yield from ((keyspace, t) for t in keyspace.tables.values() if t.is_cdc_log)

    def _tablets(self, keyspace: Keyspace, log: Table) -> int:
        """Return the number of tablets that a table should have, which is a power of two."""
        base = keyspace.tables.get(log.name.removesuffix(LOG_SUFFIX))
        options = base.options.get("tablets", {}) if base is not None else {}
        least = int(options.get("min_tablet_count", 1))
        wanted = max(least, keyspace.tablets or self.default_tablets())
        return 1 << (wanted - 1).bit_length()

    def _approach(self, log_id: UUID, wanted: int) -> None:
        while (now := len(self._histories[log_id].newest.streams)) != wanted:
            self._resize(self._histories[log_id], now * 2 if now < wanted else now // 2)

    def _first(self, keyspace: Keyspace, log: Table, tablets: int) -> StreamHistory:
        first = StreamSet.of(tablets, self.clock() // 1000 - HEAD_START_MS, self.source)
        base = log.name.removesuffix(LOG_SUFFIX)
        return StreamHistory(keyspace.name, base, log.id, (first,), Refusals(self.profile))

    def _of_base(self, keyspace: str, table: str) -> StreamHistory:
        for history in self.histories():
            if (history.keyspace, history.table) == (keyspace, table):
                return history
        raise ValueError(f"{keyspace}.{table}: expected a table of tablets with a CDC log")

    def _resize(self, history: StreamHistory, tablets: int) -> StreamSet:
        added = StreamSet.of(tablets, self.later(history.newest.timestamp), self.source)
        self._histories[history.log_id] = history.with_set(added)
        return added

    def _collect(self) -> None:
        now_us = self.clock()
        if now_us - self._collected_us < COLLECTION_INTERVAL_US:
            return
        self._collected_us = now_us
        before = dict(self._histories)
        for log_id, history in before.items():
            if ttl := self._log_ttl(history):
                self._histories[log_id] = history.since(now_us - ttl * 1_000_000)
        if self._histories != before:
            self.on_discard()

    def _log_ttl(self, history: StreamHistory) -> int:
        """Return the TTL of log rows, in seconds; 0 if there is none or the base table is gone."""
        try:
            return self.catalog.table(history.keyspace, history.table).cdc.ttl
        except InvalidRequest:
            return 0
