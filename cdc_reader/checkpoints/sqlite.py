"""Checkpoints in an SQLite file, for any number of applications and tables.

Each save is one transaction, synced to disk, so a crash of the process or the machine loses no
saved checkpoint. Several processes may share the file if they use different checkpoint names.
See `owner_locks` for the file `PATH-lock` beside it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from attrs import evolve

from cdc_reader._settings import is_text
from cdc_reader._time import Clock, Micros, SystemClock, as_duration, duration_micros
from cdc_reader.checkpoints.encoding import pack_cursor, unpack_cursor
from cdc_reader.checkpoints.marks import newest, pack_mark, prune_marks, unpack_mark
from cdc_reader.checkpoints.owner_locks import OwnerLocks
from cdc_reader.checkpoints.store import CheckpointName, Owner
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError, ConfigurationError
from cdc_reader.reading.cursor import Checkpoint, Mark
from cdc_reader.streams.stream import StreamId

_APPLICATION_ID = 0x53434443  # SCDC
_VERSION = 1
_TABLES = (
    """CREATE TABLE checkpoints (
        id INTEGER PRIMARY KEY,
        application TEXT NOT NULL,
        keyspace_name TEXT NOT NULL,
        table_name TEXT NOT NULL,
        shard TEXT NOT NULL,
        position INTEGER NOT NULL,
        cursor TEXT NOT NULL,
        UNIQUE (application, keyspace_name, table_name, shard)
    )""",
    """CREATE TABLE marks (
        checkpoint INTEGER NOT NULL REFERENCES checkpoints (id),
        stream BLOB NOT NULL,
        newest INTEGER NOT NULL,
        acked_through BLOB NOT NULL,
        rows BLOB NOT NULL,
        PRIMARY KEY (checkpoint, stream)
    ) WITHOUT ROWID""",
    "CREATE INDEX marks_by_age ON marks (checkpoint, newest)",
    """CREATE TABLE leases (
        application TEXT NOT NULL,
        keyspace_name TEXT NOT NULL,
        table_name TEXT NOT NULL,
        shard TEXT NOT NULL,
        owner TEXT NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (application, keyspace_name, table_name, shard)
    ) WITHOUT ROWID""",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_VERSION}",
)
_FIND = """SELECT id, position, cursor FROM checkpoints
    WHERE application = ? AND keyspace_name = ? AND table_name = ? AND shard = ?"""
_SAVE = """INSERT INTO checkpoints
    (application, keyspace_name, table_name, shard, position, cursor) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (application, keyspace_name, table_name, shard) DO UPDATE SET
    position = excluded.position, cursor = excluded.cursor"""
_HOLDER = """SELECT owner, until FROM leases
    WHERE application = ? AND keyspace_name = ? AND table_name = ? AND shard = ?"""
_HOLD = "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)"
_NAMES = "SELECT application, keyspace_name, table_name, shard FROM checkpoints ORDER BY 1, 2, 3, 4"
_REMEDY = "expected a checkpoint file that can be read and written: check the path"


class _LockedError(CheckpointError):
    """Another process has held the file's write lock for too long."""


class SqliteCheckpoints:
    """A `LeasingStore` in the file at `path`, created on first use; thread-safe.

    `wait` is how long to wait while another process writes to the file. `clock` decides when leases
    expire. Raises ConfigurationError if `path` cannot name a file, and CheckpointError if the file
    cannot be read, stays locked, or is not a checkpoint file.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        wait: timedelta | str = timedelta(seconds=10),
        clock: Clock | None = None,
    ) -> None:
        self._path = _path(path)
        self._wait = as_duration(wait, "wait")
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._opened: sqlite3.Connection | None = None
        self._locks = OwnerLocks(self._path.resolve())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}>"

    def load(self, name: CheckpointName) -> Checkpoint | None:
        """See `CheckpointStore.load`."""
        with self._transaction("BEGIN") as database:
            found = database.execute(_FIND, _key(name)).fetchone()
            if found is None:
                return None
            number, position, cursor = found
            rows = database.execute(
                "SELECT stream, acked_through, rows FROM marks WHERE checkpoint = ?", (number,)
            )
            marks = {StreamId(stream): unpack_mark(acked, keys) for stream, acked, keys in rows}
        checkpoint = unpack_cursor(cursor, position, marks, name.table)
        return evolve(checkpoint, marks=prune_marks(marks, position))

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        """See `CheckpointStore.save`."""
        with self._transaction("BEGIN IMMEDIATE") as database:
            _save(database, name, checkpoint)

    def acquire(self, name: CheckpointName, owner: Owner, duration: timedelta) -> Owner:
        """See `LeasingStore.acquire`.

        The lease of a process that has ended can be acquired at once. Even an expired lease remains
        with its holder while the holder locks the file, because the holder may be saving a
        checkpoint.
        """
        with self._transaction("BEGIN") as database:
            holder = self._other(database, name, owner)
            known, _ = _holder(database, name)
        if holder is not None:
            return holder
        try:
            with self._transaction("BEGIN IMMEDIATE") as database:
                if (holder := self._other(database, name, owner)) is not None:
                    return holder
                self._hold(database, name, owner, duration)
        except _LockedError:
            if known is None or known == owner:
                raise
            return known
        return owner

    def renew(self, name: CheckpointName, owner: Owner, duration: timedelta) -> bool:
        """See `LeasingStore.renew`."""
        with self._transaction("BEGIN IMMEDIATE") as database:
            if _holder(database, name)[0] != owner:
                return False
            self._hold(database, name, owner, duration)
        return True

    def release(self, name: CheckpointName, owner: Owner) -> None:
        """See `LeasingStore.release`."""
        with self._transaction("BEGIN IMMEDIATE") as database:
            if _holder(database, name)[0] == owner:
                database.execute(_HOLD, (*_key(name), owner.to_text(), 0))

    def save_as(self, owner: Owner, name: CheckpointName, checkpoint: Checkpoint) -> bool:
        """See `LeasingStore.save_as`."""
        with self._transaction("BEGIN IMMEDIATE") as database:
            if _holder(database, name)[0] != owner:
                return False
            _save(database, name, checkpoint)
        return True

    def names(self) -> list[CheckpointName]:
        """Return the names of the checkpoints, in order."""
        with self._transaction("BEGIN") as database:
            rows = database.execute(_NAMES).fetchall()
        return [CheckpointName(app, TableName(*table), shard) for app, *table, shard in rows]

    def close(self) -> None:
        """Close the file; a later use reopens it."""
        with self._lock:
            opened, self._opened = self._opened, None
            if opened is not None:
                opened.close()
            self._locks.close()

    def _other(
        self, database: sqlite3.Connection, name: CheckpointName, owner: Owner
    ) -> Owner | None:
        """Return the holder of the lease if it is not `owner`; None if nobody else holds it."""
        holder, until = _holder(database, name)
        if holder is None or holder == owner or self._clock.now() >= until:
            return None
        return None if self._locks.has_ended(holder) else holder

    def _hold(
        self, database: sqlite3.Connection, name: CheckpointName, owner: Owner, duration: timedelta
    ) -> None:
        self._locks.hold(owner)
        until = self._clock.now() + duration_micros(duration)
        database.execute(_HOLD, (*_key(name), owner.to_text(), until))

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Open the file in a transaction that commits or rolls back when the context ends."""
        with self._lock, self._checkpoint_errors():
            if self._opened is None:
                self._opened = self._open()
            database = self._opened
            database.execute(begin)
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise

    @contextmanager
    def _checkpoint_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if _is_busy(error):
                seconds = self._wait.total_seconds()
                raise _LockedError(
                    f"checkpoints in {self._path}: locked by another process for more than "
                    f"{seconds:g} s; stop that process, or give each process its own file"
                ) from error
            raise CheckpointError(f"checkpoints in {self._path}: {error}; {_REMEDY}") from error

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            self._path,
            timeout=self._wait.total_seconds(),
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Create the tables in a new file."""
        self._check_version(database)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN IMMEDIATE")
        if self._check_version(database):
            for statement in _TABLES:
                database.execute(statement)
        database.execute("COMMIT")

    def _check_version(self, database: sqlite3.Connection) -> bool:
        """Return whether the file is new; raise CheckpointError if another program wrote it."""
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (owner,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if not tables and not owner:
            return True
        if owner != _APPLICATION_ID:
            raise CheckpointError(
                f"{self._path} is another application's database; give checkpoints a file of "
                "their own"
            )
        if version != _VERSION:
            raise CheckpointError(
                f"checkpoints in {self._path}: found version {version}, expected {_VERSION}; use "
                "the version of scylla-cdc that wrote them, or give another file"
            )
        return False


def _save(database: sqlite3.Connection, name: CheckpointName, checkpoint: Checkpoint) -> None:
    position = checkpoint.position
    is_new = database.execute(_FIND, _key(name)).fetchone() is None
    database.execute(_SAVE, (*_key(name), position, pack_cursor(checkpoint)))
    (number, *_) = database.execute(_FIND, _key(name)).fetchone()
    if is_new:  # SQLite may reuse the id of a deleted row, whose marks may still be there
        database.execute("DELETE FROM marks WHERE checkpoint = ?", (number,))
    database.executemany(
        "INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?, ?)",
        [_row(number, *item, position) for item in checkpoint.marks.items()],
    )
    database.execute("DELETE FROM marks WHERE checkpoint = ? AND newest < ?", (number, position))


def _holder(database: sqlite3.Connection, name: CheckpointName) -> tuple[Owner | None, int]:
    """Return the owner that last acquired the lease, and when the lease ends, in µs."""
    found = database.execute(_HOLDER, _key(name)).fetchone()
    return (None, 0) if found is None else (Owner.from_text(found[0]), found[1])


def _is_busy(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _key(name: CheckpointName) -> tuple[str, str, str, str]:
    return name.application, name.table.keyspace, name.table.name, name.shard


def _row(number: int, stream: StreamId, mark: Mark, position: Micros) -> tuple[object, ...]:
    """Return the row of a mark.

    A mark that has no rows at or after the position gets a time before the position, so that the
    mark is deleted.
    """
    age = newest(mark) if mark.reaches(position) else None
    return number, bytes(stream), position - 1 if age is None else age, *pack_mark(mark)


def _path(path: str | Path) -> Path:
    """Return the path; raise ConfigurationError unless it has a name that SQLite can open."""
    if not is_text(str(path)):
        raise ConfigurationError("path", str(path), "give the path of a file")
    return Path(path)
