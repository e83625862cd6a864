"""The contents of a table's log, and the progress of its readers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from cdc_reader._time import BEGINNING, Clock
from cdc_reader.checkpoints import ScyllaCheckpoints, SqliteCheckpoints
from cdc_reader.checkpoints.spark import SparkCheckpoint
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.failure import Misuse
from cdc_reader.cli.following import CheckpointPlace
from cdc_reader.cli.generations import Row, StreamCounts, rows_of
from cdc_reader.cli.status.readers import SECOND, Reader
from cdc_reader.cluster import ClusterClock, Connection, SchemaSource, TableGenerations
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import CdcOptions
from cdc_reader.reading.progress import Checkpoint


@frozen
class Status:
    """The contents of a table's log, and its readers.

    Generations whose rows have all expired are left out.
    """

    table: TableName
    options: CdcOptions
    generations: Sequence[Row]
    readers: Sequence[Reader]
    never_ran: Sequence[CheckpointName] = ()
    """The shards that have no position yet, if their application divides the table into shards."""

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        return {
            "table": str(self.table),
            "log": {
                "enabled": self.options.enabled,
                "ttl_seconds": self.options.ttl or None,
                "delta": "keys" if self.options.delta_keys_only else "full",
                "preimage": self.options.preimage.value,
                "postimage": self.options.postimage,
            },
            "generations": [row.to_dict() for row in self.generations],
            "applications": [reader.to_dict() for reader in self.readers],
            "never_ran": [
                {"application": name.application, "shard": name.shard} for name in self.never_ran
            ],
        }


class Positions:
    """The positions stored in a checkpoint store. Does not create the store.

    With an `application` or a `shard`, contains only the positions of this application or shard.
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        place: CheckpointPlace,
        application: str | None,
        shard: str | None,
        retry_deadline: timedelta,
    ) -> None:
        if isinstance(place.at, Path) and not place.at.exists():
            raise Misuse(
                f"--checkpoint is {str(place)!r}: no such file; give the checkpoint file of a "
                "reader"
            )
        self._place = place
        self._application = application
        self._shard = shard
        self._store: SqliteCheckpoints | ScyllaCheckpoints | Path
        if isinstance(place.at, Path) and place.at.is_dir():
            self._store = place.at
        else:
            self._store = place.open(connection, retry_deadline)

    def of(self, table: TableName) -> Mapping[CheckpointName, Checkpoint | None]:
        """Return the checkpoints of a table by name; None for a shard that never ran."""
        kept = self._store
        store = SparkCheckpoint(kept, table) if isinstance(kept, Path) else kept
        names = [name for name in store.names() if name.table == table]
        wanted = [name for name in names if self._application in (None, name.application)]
        if self._application is not None and not wanted:
            known = ", ".join(sorted({name.application for name in names})) or "nobody"
            raise Misuse(
                f"--application is {self._application!r}: of {table}, {self._place} knows {known}"
            )
        loaded = {name: store.load(name) for name in wanted if not name.is_shared}
        if self._shard is not None:
            return {name: kept for name, kept in loaded.items() if name.shard == self._shard}
        return {**loaded, **dict.fromkeys(_shards(wanted) - loaded.keys())}

    def close(self) -> None:
        """Close the store."""
        if not isinstance(self._store, Path):
            self._store.close()


def _shards(names: Iterable[CheckpointName]) -> set[CheckpointName]:
    """Return all shards of the applications to which these names belong."""
    counts = ((name, name.shard.partition("/")[2]) for name in names)
    return {
        evolve(name, shard=f"{number}/{count}")
        for name, count in counts
        if count.isdecimal()
        for number in range(1, int(count) + 1)
    }


@frozen
class StatusSource:
    """Reads the status of tables, over one connection.

    If `positions` is None, no readers are shown. Each status takes about ten small queries. The
    streams of each generation are listed only once.
    """

    queries: Connection
    positions: Positions | None
    counts: StreamCounts | None
    clock: ClusterClock

    @classmethod
    def open(
        cls,
        connection: ConnectionConfig,
        place: CheckpointPlace | None,
        application: str | None,
        shard: str | None = None,
        *,
        count: bool,
        clock: Clock,
        retry_deadline: timedelta,
    ) -> StatusSource:
        """Open the store of positions; the connection opens on first use."""
        positions = None
        if place is not None:
            positions = Positions(connection, place, application, shard, retry_deadline)
        queries = Connection(connection, ReadConfig(retry_deadline=retry_deadline))
        counts = StreamCounts() if count else None
        return cls(queries, positions, counts, ClusterClock(queries, clock))

    def of(self, table: TableName) -> Status:
        """Return a table's current status."""
        kept = {} if self.positions is None else self.positions.of(table)
        base = SchemaSource(self.queries).log_schema(table).base
        options = base.cdc
        source, now = TableGenerations(self.queries, table).source, self.clock.now()
        expired = now - options.ttl * SECOND if options.ttl else BEGINNING
        rows = list(rows_of(source, self.counts, now, expired))
        announced = [row.operates.start for row in rows if row.is_announced]
        oldest = max(expired, min(announced)) if announced else None
        readers = [
            Reader(
                name,
                checkpoint,
                oldest,
                now,
                checkpoint.ttls.updated(base, now, checkpoint.position),
                base.id,
            )
            for name, checkpoint in kept.items()
            if checkpoint is not None
        ]
        never_ran = [name for name, checkpoint in kept.items() if checkpoint is None]
        return Status(table, options, rows, readers, sorted(never_ran, key=str))

    def reconnect(self) -> None:
        """Close the connection, so that the next status opens a new one."""
        self.queries.close()

    def close(self) -> None:
        """Close the connection and the store."""
        self.queries.close()
        if self.positions is not None:
            self.positions.close()
