"""Checkpoints in a table of a ScyllaDB cluster, the one that is read or another.

A save is one mutation of one partition, hence applied whole or not at all; that of an idle
window is a single INSERT. Every write carries its own timestamp, later than those before it,
those of an earlier process on a host whose clock was ahead included.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from datetime import timedelta

from attrs import define, evolve, field

from cdc_reader.checkpoint.layout import CheckpointTable, Stored
from cdc_reader.checkpoint.living import living
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.driver import Connection
from cdc_reader.driver.statements import Statements, Write
from cdc_reader.ids import TableName
from cdc_reader.progress import Checkpoint, CheckpointName

_PART = 64 * 1024
"""Bytes of marks a mutation: half of what servers warn of by default."""


@define
class _Kept:
    """What the table holds of one checkpoint, as its one writer knows it; None if it does not."""

    lock: threading.Lock = field(factory=threading.Lock)
    stored: Stored | None = None


class ScyllaCheckpoints:
    """A `CheckpointStore` in the table `keyspace`.`table`, made when first used; thread-safe.

    The keyspace must be there. A checkpoint expires `ttl` after it was last saved, never if
    None; have it at least as long as the log's TTL. Failures that may pass are retried up to
    `retry_deadline`. Raises CheckpointError for a table that cannot be used, else the errors
    of a connection.
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        keyspace: str,
        table: str = "cdc_checkpoints",
        *,
        ttl: timedelta | None = None,
        consistency: str = "QUORUM",
        retry_deadline: timedelta = timedelta(minutes=2),
    ) -> None:
        name = TableName(keyspace, table)
        way = Connection(connection, ReadConfig(retry_deadline=retry_deadline))
        self._statements = Statements(way, consistency, f"checkpoints in {name}")
        self._table = CheckpointTable(
            name, self._statements, int(ttl.total_seconds()) if ttl else 0
        )
        self._lock = threading.Lock()
        self._ready = False
        self._kept: dict[CheckpointName, _Kept] = {}

    def load(self, name: CheckpointName) -> Checkpoint | None:
        """See `CheckpointStore.load`."""
        kept = self._entry(name)
        with kept.lock:
            kept.stored = self._table.load(name)
            found = kept.stored.checkpoint
        return found and evolve(found, marks=living(found.marks, found.position))

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        """See `CheckpointStore.save`.

        More than 64 KiB of marks are saved in parts, each of which is true by itself.
        """
        kept = self._entry(name)
        with kept.lock:
            stored, kept.stored = kept.stored or self._table.load(name), None
            kept.stored = self._save(name, stored, checkpoint)

    def names(self) -> list[CheckpointName]:
        """Whose checkpoints it has, in order; does not make the table."""
        return self._table.names()

    def close(self) -> None:
        """Give up the connection; using the store again opens another."""
        with self._lock:
            self._ready = False
            self._kept.clear()
            self._statements.close()

    def _entry(self, name: CheckpointName) -> _Kept:
        with self._lock:
            if not self._ready:
                self._table.make()
                self._ready = True
            return self._kept.setdefault(name, _Kept())

    def _save(self, name: CheckpointName, stored: Stored, checkpoint: Checkpoint) -> Stored:
        """Write what changes; returns what is there then."""
        position = checkpoint.position
        old = stored.checkpoint.position if stored.checkpoint else position
        marks = {**(stored.checkpoint.marks if stored.checkpoint else {}), **checkpoint.marks}
        alive = {s: mark for s, mark in marks.items() if mark.reaches(position)}
        at = max(time.time_ns() // 1_000, stored.written + 1)
        said = checkpoint.marks if old == position else alive
        first, *parts = _parts(self._table.mark(name, position, *item, at) for item in said.items())
        last = [self._table.position(name, checkpoint, at)]
        if old != position and stored.has_rows:
            last.append(self._table.void(name, old, position, at))
        for part in parts:
            self._statements.write(part)
        self._statements.write([*first, *last])
        has_rows = bool(said) or (stored.has_rows and old == position)
        return Stored(evolve(checkpoint, marks=alive), at, has_rows)


def _parts(writes: Iterable[Write]) -> list[list[Write]]:
    """Runs of at most `_PART` bytes; one at least."""
    parts: list[list[Write]] = [[]]
    size = 0
    for write in writes:
        length = sum(len(value) for value in write.values if isinstance(value, bytes | str))
        if size + length > _PART and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(write)
        size += length
    return parts
