"""The contents of a table's log, and the progress of its readers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, frozen

from cdc_reader._time import BEGINNING, Micros, format_timestamp
from cdc_reader.checkpoints import ScyllaCheckpoints, SqliteCheckpoints
from cdc_reader.checkpoints.spark import SparkCheckpoint
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.failure import Misuse
from cdc_reader.cli.following import CheckpointPlace
from cdc_reader.cli.generations import Row, rows_of
from cdc_reader.cli.status.reader import SECOND, Reader
from cdc_reader.cluster import ClusterClock, Connection, SchemaSource, TableGenerations
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import CdcOptions
from cdc_reader.reading.cursor import Checkpoint


@frozen
class Status:
    """The contents of a table's log at a time (µs), and its readers.

    Generations whose rows have all expired are left out.
    """

    at: Micros
    table: TableName
    options: CdcOptions
    generations: Sequence[Row]
    readers: Sequence[Reader]

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        return {
            "time": format_timestamp(self.at),
            "table": str(self.table),
            "log": {**asdict(self.options), "preimage": self.options.preimage.value},
            "generations": [row.to_dict() for row in self.generations],
            "applications": [reader.to_dict() for reader in self.readers],
        }


@frozen
class StatusSource:
    """Reads the status of tables: with about ten small queries each, over one connection.

    Without a `place`, no readers are shown; `store` is the store there, or None for Spark's
    checkpoints. With an `application` or a `shard`, only its readers are shown.
    """

    queries: Connection
    clock: ClusterClock
    place: CheckpointPlace | None
    store: SqliteCheckpoints | ScyllaCheckpoints | None
    application: str | None
    shard: str | None

    def of(self, table: TableName) -> Status:
        """Return a table's current status."""
        kept = {} if self.place is None else self._positions(self.place, table)
        base = SchemaSource(self.queries).log_schema(table).base
        source, now = TableGenerations(self.queries, table).source, self.clock.now()
        expired = now - base.cdc.ttl * SECOND if base.cdc.ttl else BEGINNING
        rows = list(rows_of(source, None, now, expired))
        announced = [row.operates.start for row in rows if row.is_announced]
        oldest = max(expired, min(announced)) if announced else None
        readers = [Reader.of(name, found, oldest, now, base) for name, found in kept.items()]
        return Status(now, table, base.cdc, rows, readers)

    def _positions(
        self, place: CheckpointPlace, table: TableName
    ) -> Mapping[CheckpointName, Checkpoint | None]:
        """Return the checkpoints of a table by name; None for a shard that never ran."""
        store = self.store or SparkCheckpoint(Path(str(place)), table)
        names = [name for name in store.names() if name.table == table]
        wanted = [name for name in names if self.application in (None, name.application)]
        if self.application is not None and not wanted:
            known = ", ".join(sorted({name.application for name in names})) or "nobody"
            raise Misuse(
                f"--application is {self.application!r}: of {table}, {place} knows {known}"
            )
        loaded = {name: store.load(name) for name in wanted if not name.is_shared}
        if self.shard is not None:
            return {name: kept for name, kept in loaded.items() if name.shard == self.shard}
        return {**loaded, **dict.fromkeys(sorted(_shards(wanted) - loaded.keys(), key=str))}


def _shards(names: Iterable[CheckpointName]) -> set[CheckpointName]:
    """Return all shards of the applications to which these names belong."""
    counts = ((name, name.shard.partition("/")[2]) for name in names)
    return {
        evolve(name, shard=f"{number}/{count}")
        for name, count in counts
        if count.isdecimal()
        for number in range(1, int(count) + 1)
    }
