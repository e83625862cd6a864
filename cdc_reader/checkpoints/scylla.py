"""Checkpoints in a ScyllaDB table, in the cluster that is read or in another cluster.

A save is one mutation of one partition, so it is applied completely or not at all. Under a lease, a
save is a lightweight transaction, and the servers assign it a timestamp later than the timestamps
of all earlier saves. Without a lease, `ScyllaCheckpoints` chooses a timestamp later than the
timestamp of the previous save, even if that save came from a host whose clock was ahead.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from datetime import timedelta

from attrs import define, evolve, field

from cdc_reader._time import as_duration
from cdc_reader.checkpoints.marks import prune_marks
from cdc_reader.checkpoints.scylla_table import CheckpointTable, LeaseCells, Stored
from cdc_reader.checkpoints.store import CheckpointName, Owner
from cdc_reader.cluster import Connection
from cdc_reader.cluster.write import Statements, Write
from cdc_reader.config import CONSISTENCIES, ConnectionConfig, ReadConfig, as_connection
from cdc_reader.cql.names import TableName
from cdc_reader.errors import ConfigurationError, TransientError
from cdc_reader.reading.cursor import Checkpoint, Mark
from cdc_reader.reading.retry import Interruptible
from cdc_reader.streams.stream import StreamId

_PART = 64 * 1024
"""Bytes of marks per mutation: half of the size at which servers warn by default."""


@define
class _Kept:
    """The table's content for one checkpoint; `stored` is None if the content is unknown.

    A checkpoint has only one writer, so the writer can keep the content in memory.
    """

    lock: threading.Lock = field(factory=threading.Lock)
    stored: Stored | None = None


class ScyllaCheckpoints(Interruptible):
    """A `LeasingStore` in the table `keyspace`.`table`, created on first use; thread-safe.

    The keyspace must exist. A checkpoint expires `ttl` after it was last saved, or never if `ttl`
    is None; set `ttl` to at least the log's TTL. Transient failures are retried for up to
    `retry_deadline`. Durations are timedeltas, or strings such as ``30d``. Raises the usual
    connection errors, and CheckpointError for a table that cannot be used.
    """

    __slots__ = ("_statements",)
    _waiting = "_statements"

    def __init__(
        self,
        connection: ConnectionConfig | str,
        keyspace: str,
        table: str = "cdc_checkpoints",
        *,
        ttl: timedelta | str | None = None,
        consistency: str = "QUORUM",
        retry_deadline: timedelta | str = timedelta(minutes=2),
    ) -> None:
        name = TableName(keyspace, table)
        if consistency not in CONSISTENCIES:
            remedy = f"give one of {', '.join(CONSISTENCIES)}"
            raise ConfigurationError("consistency", consistency, remedy)
        config = as_connection(connection)
        self._place = f"{name} at {config.hosts}"
        queries = Connection(config, ReadConfig(retry_deadline=retry_deadline))
        self._name, self._ttl = name, _seconds(ttl)
        self._statements = Statements(queries, consistency, f"checkpoints in {name}")
        self._lock = threading.Lock()
        self._ready = False
        self._kept: dict[CheckpointName, _Kept] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._place}>"

    def load(self, name: CheckpointName) -> Checkpoint | None:
        """See `CheckpointStore.load`."""
        kept = self._entry(name)
        with kept.lock:
            kept.stored = self._table.load(name)
            found = kept.stored.checkpoint
        return found and evolve(found, marks=prune_marks(found.marks, found.position))

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        """See `CheckpointStore.save`.

        If the marks exceed 64 KiB, they are saved in parts. The stored checkpoint is correct after
        each part.
        """
        kept = self._entry(name)
        with kept.lock:
            stored, kept.stored = kept.stored, None
            if stored is None or stored.written is None:
                stored = self._table.load(name)
            at = max(time.time_ns() // 1_000, (stored.written or 0) + 1)
            for part in self._writes(name, stored, checkpoint, at):
                self._statements.write(part)
            kept.stored = evolve(_after(stored, checkpoint), written=at)

    def acquire(self, name: CheckpointName, owner: Owner, duration: timedelta) -> Owner:
        """See `LeasingStore.acquire`.

        Raises TransientError while the timestamp of the last save is ahead of the servers' clock,
        because that save would override later saves.
        """
        kept, text, lifetime = self._entry(name), owner.to_text(), _lifetime(duration)
        with kept.lock:
            holder = self._leases.acquire(name, text, lifetime)
            if holder not in (None, text):
                return Owner.from_text(holder)
            if holder == text:
                self._leases.renew(name, text, lifetime)
            kept.stored = self._table.load(name)
            self._check_clock(name, kept.stored)
        return owner

    def renew(self, name: CheckpointName, owner: Owner, duration: timedelta) -> bool:
        """See `LeasingStore.renew`."""
        return self._leases.renew(name, owner.to_text(), _lifetime(duration))

    def release(self, name: CheckpointName, owner: Owner) -> None:
        """See `LeasingStore.release`."""
        self._leases.release(name, owner.to_text())

    def save_as(self, owner: Owner, name: CheckpointName, checkpoint: Checkpoint) -> bool:
        """See `LeasingStore.save_as`."""
        kept, text = self._entry(name), owner.to_text()
        with kept.lock:
            stored, kept.stored = kept.stored or self._table.load(name), None
            for part in self._writes(name, stored, checkpoint, None):
                if not self._leases.write_as(text, name, part):
                    return False
            kept.stored = _after(stored, checkpoint)
        return True

    def names(self) -> list[CheckpointName]:
        """Return the names of the checkpoints, in order. Does not create the table."""
        return self._table.names()

    def close(self) -> None:
        """Close the connection; a later use reopens it."""
        with self._lock:
            self._ready = False
            self._kept.clear()
            self._statements.close()

    @property
    def _table(self) -> CheckpointTable:
        return CheckpointTable(self._name, self._statements, self._ttl)

    @property
    def _leases(self) -> LeaseCells:
        return LeaseCells(self._name, self._statements, self._ttl)

    def _entry(self, name: CheckpointName) -> _Kept:
        with self._lock:
            if not self._ready:
                self._table.make()
                self._ready = True
            return self._kept.setdefault(name, _Kept())

    def _writes(
        self, name: CheckpointName, stored: Stored, checkpoint: Checkpoint, at: int | None
    ) -> list[list[Write]]:
        """Return the writes that save a checkpoint, in parts; the last part sets the position.

        The stored checkpoint is correct after each part.
        """
        position, old = checkpoint.position, _position(stored, checkpoint)
        said = checkpoint.marks if old == position else _marks(stored, checkpoint)
        first, *parts = _parts(self._table.mark(name, position, *item, at) for item in said.items())
        last = [self._table.position(name, checkpoint, at)]
        if old != position and stored.has_rows:
            last.append(self._table.void(name, old, position, at))
        return [*parts, [*first, *last]]

    def _check_clock(self, name: CheckpointName, stored: Stored) -> None:
        if (ahead := (stored.written or 0) - stored.owned) > 0:
            raise TransientError(
                f"the checkpoint of {name.application!r} for {name.table} was saved by a host "
                f"whose clock is {ahead / 1_000_000:g} s ahead of the cluster's, so a checkpoint "
                "saved now would count as older: correct that host's clock, and wait until that "
                "time has passed"
            )


def _lifetime(duration: timedelta) -> int:
    """Return a TTL, in seconds, of at least `duration`.

    One second is added because a cell's TTL counts whole seconds, rounded down.
    """
    return math.ceil(duration.total_seconds()) + 1


def _position(stored: Stored, checkpoint: Checkpoint) -> int:
    """Return the stored position, or the checkpoint's position if none is stored."""
    return stored.checkpoint.position if stored.checkpoint else checkpoint.position


def _marks(stored: Stored, checkpoint: Checkpoint) -> dict[StreamId, Mark]:
    """Return the marks that apply after `checkpoint` is saved."""
    marks = {**(stored.checkpoint.marks if stored.checkpoint else {}), **checkpoint.marks}
    return {stream: mark for stream, mark in marks.items() if mark.reaches(checkpoint.position)}


def _after(stored: Stored, checkpoint: Checkpoint) -> Stored:
    """Return the table's content after `checkpoint` is saved."""
    marks, stays = _marks(stored, checkpoint), _position(stored, checkpoint) == checkpoint.position
    has_rows = bool(marks if not stays else checkpoint.marks) or (stored.has_rows and stays)
    return Stored(evolve(checkpoint, marks=marks), None, has_rows)


def _seconds(ttl: timedelta | str | None) -> int:
    """Return the TTL in whole seconds, or 0 (no TTL) if `ttl` is None."""
    if ttl is None:
        return 0
    seconds = int(as_duration(ttl, "ttl").total_seconds())
    if seconds < 1:
        raise ConfigurationError("ttl", ttl, "give at least one second, or leave it out")
    return seconds


def _parts(writes: Iterable[Write]) -> list[list[Write]]:
    """Split the writes into one or more parts of at most `_PART` bytes each."""
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
