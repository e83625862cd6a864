"""Checkpoints in an SQLite file, of any number of applications and tables.

One transaction a save, synced to the disk; so a process may be killed at any moment, and the
machine too. Several processes may share the file, each with names of its own.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from cdc_reader.checkpoint.living import living, newest
from cdc_reader.checkpoint.packing import pack_mark, unpack_mark
from cdc_reader.errors import CheckpointError
from cdc_reader.ids import StreamId, TableName
from cdc_reader.progress import Checkpoint, CheckpointName, Mark

_APPLICATION_ID = 0x53434443  # SCDC
_LAYOUT = 1
_TABLES = (
    """CREATE TABLE checkpoints (
        id INTEGER PRIMARY KEY,
        application TEXT NOT NULL,
        keyspace_name TEXT NOT NULL,
        table_name TEXT NOT NULL,
        shard TEXT NOT NULL,
        position INTEGER NOT NULL,
        generation INTEGER,
        swept INTEGER,
        UNIQUE (application, keyspace_name, table_name, shard)
    )""",
    """CREATE TABLE marks (
        checkpoint INTEGER NOT NULL REFERENCES checkpoints (id),
        stream BLOB NOT NULL,
        newest INTEGER NOT NULL,
        upto BLOB NOT NULL,
        rows BLOB NOT NULL,
        PRIMARY KEY (checkpoint, stream)
    ) WITHOUT ROWID""",
    "CREATE INDEX marks_by_age ON marks (checkpoint, newest)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_LAYOUT}",
)
_FIND = """SELECT id, position, generation, swept FROM checkpoints
    WHERE application = ? AND keyspace_name = ? AND table_name = ? AND shard = ?"""
_SAVE = """INSERT INTO checkpoints
    (application, keyspace_name, table_name, shard, position, generation, swept)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (application, keyspace_name, table_name, shard) DO UPDATE SET
    position = excluded.position, generation = excluded.generation, swept = excluded.swept"""
_NAMES = "SELECT application, keyspace_name, table_name, shard FROM checkpoints ORDER BY 1, 2, 3, 4"
_REMEDY = "expected a file of checkpoints that can be read and written: check the path"


class SqliteCheckpoints:
    """A `CheckpointStore` in the file at `path`, which is made when first used; thread-safe.

    `wait` bounds how long it waits for another process that is writing to the file. Raises
    CheckpointError for a file that cannot be used: unreadable, locked, or something else.
    """

    def __init__(self, path: str | Path, *, wait: timedelta = timedelta(seconds=10)) -> None:
        self._path = Path(path)
        self._wait = wait
        self._lock = threading.Lock()
        self._opened: sqlite3.Connection | None = None

    def load(self, name: CheckpointName) -> Checkpoint | None:
        """See `CheckpointStore.load`."""
        with self._transaction("BEGIN") as database:
            found = database.execute(_FIND, _key(name)).fetchone()
            if found is None:
                return None
            number, position, generation, swept = found
            rows = database.execute(
                "SELECT stream, upto, rows FROM marks WHERE checkpoint = ?", (number,)
            )
            marks = {StreamId(stream): unpack_mark(upto, keys) for stream, upto, keys in rows}
        return Checkpoint(position, generation, living(marks, position), swept)

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        """See `CheckpointStore.save`."""
        position = checkpoint.position
        values = (*_key(name), position, checkpoint.generation, checkpoint.swept)
        with self._transaction("BEGIN IMMEDIATE") as database:
            database.execute(_SAVE, values)
            (number, *_) = database.execute(_FIND, _key(name)).fetchone()
            database.executemany(
                "INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?, ?)",
                [_row(number, *item, position) for item in checkpoint.marks.items()],
            )
            database.execute(
                "DELETE FROM marks WHERE checkpoint = ? AND newest < ?", (number, position)
            )

    def names(self) -> list[CheckpointName]:
        """Whose checkpoints it has, in order."""
        with self._transaction("BEGIN") as database:
            rows = database.execute(_NAMES).fetchall()
        return [CheckpointName(app, TableName(*table), shard) for app, *table, shard in rows]

    def close(self) -> None:
        """Close the file; using the store again opens it anew."""
        with self._lock:
            opened, self._opened = self._opened, None
            if opened is not None:
                opened.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """The file, in a transaction that ends with the context: whole, or not at all."""
        with self._lock, self._telling():
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
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if _is_busy(error):
                seconds = self._wait.total_seconds()
                raise CheckpointError(
                    f"checkpoints in {self._path}: locked by another process for more than "
                    f"{seconds:g} s; end what keeps it open, or give each process its own file"
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
        """Make the tables if the file is new, and see that it is of the layout known here."""
        self._check(database)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN IMMEDIATE")
        if not self._check(database):
            for statement in _TABLES:
                database.execute(statement)
        database.execute("COMMIT")

    def _check(self, database: sqlite3.Connection) -> bool:
        """Whether it is a file of checkpoints already; CheckpointError if it is another's."""
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (owner,) = database.execute("PRAGMA application_id").fetchone()
        (layout,) = database.execute("PRAGMA user_version").fetchone()
        if not tables and not owner:
            return False
        if owner != _APPLICATION_ID:
            raise CheckpointError(
                f"{self._path} is another application's database; give the checkpoints a file "
                "of their own"
            )
        if layout != _LAYOUT:
            raise CheckpointError(
                f"checkpoints in {self._path} have layout {layout}, expected {_LAYOUT}; use the "
                "version of scylla-cdc that wrote them, or give another file"
            )
        return True


def _is_busy(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _key(name: CheckpointName) -> tuple[str, str, str, str]:
    return name.application, name.table.keyspace, name.table.name, name.shard


def _row(number: int, stream: StreamId, mark: Mark, position: int) -> tuple[object, ...]:
    """A mark's row; one that names nothing is as old as can be, and goes with the old ones."""
    age = newest(mark) if mark.reaches(position) else None
    return number, bytes(stream), position - 1 if age is None else age, *pack_mark(mark)
