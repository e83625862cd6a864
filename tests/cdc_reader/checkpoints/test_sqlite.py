"""The checkpoint file: shared access, and processes that are killed at any moment."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
from contextlib import closing
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from attrs import evolve

from cdc_reader.checkpoints import SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointName, Owner
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations, Mark, RowKey
from cdc_reader.streams.stream import StreamId
from cdc_reader.testing import ManualClock

NAME = CheckpointName("app", TableName("ks", "t"))
STREAM = StreamId(bytes(16))
OWNER = Owner.of_this_process(0)


def execute(path: Path, *statements: str) -> None:
    """Execute SQL statements on the file directly, without the store."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)


def test_another_applications_database_is_refused(tmp_path: Path) -> None:
    """A database of another application is rejected and left unchanged."""
    path = tmp_path / "theirs.db"
    execute(path, "CREATE TABLE t (x)")
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"theirs\.db is another application's database"):
        SqliteCheckpoints(path).load(NAME)
    assert path.read_bytes() == before


def test_the_names_in_a_file_are_known(tmp_path: Path) -> None:
    """A store lists the checkpoint names in its file, in order. A new file contains none."""
    store = SqliteCheckpoints(tmp_path / "c.db")
    assert store.names() == []
    names = [CheckpointName(app, NAME.table, part) for app in "ab" for part in ("1/2", "2/2")]
    for name in reversed(names):
        store.save(name, Checkpoint(1))
    assert store.names() == names
    store.close()


def test_a_new_checkpoint_has_no_marks_of_a_deleted_one(tmp_path: Path) -> None:
    """If a checkpoint's row is deleted but its marks remain, no other checkpoint gets the marks."""
    path = tmp_path / "c.db"
    store = SqliteCheckpoints(path)
    store.save(NAME, Checkpoint(1, marks={STREAM: Mark(_key(9))}))
    execute(path, "DELETE FROM checkpoints")
    store.save(evolve(NAME, application="other"), Checkpoint(1))
    found = store.load(evolve(NAME, application="other"))
    assert found is not None
    assert found.marks == {}
    store.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """A file that is not a database is rejected and left unchanged."""
    path = tmp_path / "notes.txt"
    path.write_text("no database at all, " * 100)
    with pytest.raises(CheckpointError, match=r"not a database; expected a checkpoint file"):
        SqliteCheckpoints(path).save(NAME, Checkpoint(1))
    assert path.read_text() == "no database at all, " * 100


def test_another_version_is_refused(tmp_path: Path) -> None:
    """A file of another version is left unchanged, and the error shows both versions."""
    path = tmp_path / "c.db"
    store = SqliteCheckpoints(path)
    store.save(NAME, Checkpoint(1))
    store.close()
    execute(path, "PRAGMA user_version = 7")
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match=r"found version 7, expected 1; use the"):
        SqliteCheckpoints(path).load(NAME)
    assert path.read_bytes() == before


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    """A missing directory is reported, not created."""
    with pytest.raises(
        CheckpointError, match=r"unable to open database file; expected a checkpoint file"
    ):
        SqliteCheckpoints(tmp_path / "nowhere" / "c.db").load(NAME)


def test_a_lock_beyond_the_timeout_is_reported(tmp_path: Path) -> None:
    """A save fails if a lock outlasts the timeout. Loads and later saves still work."""
    path = tmp_path / "c.db"
    store = SqliteCheckpoints(path, wait=timedelta(milliseconds=50))
    store.save(NAME, Checkpoint(1))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CheckpointError, match=r"locked by another process for more than 0.05"):
            store.save(NAME, Checkpoint(2))
        assert store.load(NAME) == Checkpoint(1)
        other.execute("ROLLBACK")
    store.save(NAME, Checkpoint(3))
    assert store.load(NAME) == Checkpoint(3)


def test_a_lease_cannot_be_taken_while_its_holder_saves(tmp_path: Path) -> None:
    """During a save, no other owner can acquire the lease, even if the lease has expired."""
    path, clock = tmp_path / "c.db", ManualClock(0)
    store = SqliteCheckpoints(path, wait=timedelta(milliseconds=20), clock=clock)
    other, minute = Owner.of_this_process(1), timedelta(minutes=1)
    assert store.acquire(NAME, OWNER, minute) == OWNER
    clock.advance(120_000_000)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        assert store.acquire(NAME, other, minute) == OWNER
        with pytest.raises(CheckpointError, match="locked by another process"):
            store.acquire(evolve(NAME, shard="1/2"), other, minute)
        holder.execute("ROLLBACK")
    assert store.acquire(NAME, other, minute) == other


def test_each_owner_has_a_lock_that_ends_with_its_process(tmp_path: Path) -> None:
    """In one process or several, an owner keeps its lease until its lock is gone."""
    path, day = tmp_path / "c.db", timedelta(days=1)
    first, second = SqliteCheckpoints(path), SqliteCheckpoints(path)
    other = Owner.of_this_process(1)
    assert first.acquire(NAME, OWNER, day) == OWNER
    assert [store.acquire(NAME, other, day) for store in (first, second)] == [OWNER, OWNER]
    child = multiprocessing.get_context("spawn").Process(target=_hold_and_die, args=(path,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert second.acquire(evolve(NAME, shard="2/2"), other, day) == other
    assert second.acquire(NAME, other, day) == OWNER
    first.close()
    assert second.acquire(NAME, other, day) == other
    assert not first.renew(NAME, OWNER, day)
    first.close()
    second.close()


def test_a_forked_child_does_not_inherit_a_lock(tmp_path: Path) -> None:
    """A child that outlives the owner's process does not keep the lease."""
    path, other = tmp_path / "c.db", Owner.of_this_process(1)
    first, second = SqliteCheckpoints(path), SqliteCheckpoints(path)
    assert first.acquire(NAME, OWNER, timedelta(days=1)) == OWNER
    mine, its = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_last_for_ever, args=(its,))
    child.start()
    assert mine.recv() == "begun"
    assert second.acquire(NAME, other, timedelta(days=1)) == OWNER
    first.close()
    assert second.acquire(NAME, other, timedelta(days=1)) == other
    child.kill()
    child.join()
    second.close()


def _last_for_ever(told: Connection) -> None:
    told.send("begun")
    threading.Event().wait()


def _hold_and_die(path: Path) -> None:
    mine = Owner.of_this_process(2)
    name = evolve(NAME, shard="2/2")
    assert SqliteCheckpoints(path).acquire(name, mine, timedelta(days=1)) == mine
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_lock_that_cannot_be_had_is_reported(tmp_path: Path) -> None:
    """If the file of locks cannot be written, the lease is refused with an error in one line."""
    (tmp_path / "c.db-lock").mkdir()
    store = SqliteCheckpoints(tmp_path / "c.db")
    with pytest.raises(CheckpointError, match=r"c\.db: .*c\.db-lock'; expected a checkpoint file"):
        store.acquire(NAME, OWNER, timedelta(minutes=1))
    assert store.load(NAME) is None
    store.close()


def test_processes_may_create_and_share_a_file(tmp_path: Path) -> None:
    """Several processes may create and share a file if each uses its own name."""
    context = multiprocessing.get_context("spawn")
    path = tmp_path / "c.db"
    workers = [context.Process(target=_save_some, args=(path, f"app {n}")) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    store = SqliteCheckpoints(path)
    for number in range(3):
        name = CheckpointName(f"app {number}", NAME.table)
        assert store.load(name) == Checkpoint(19)


def _save_some(path: Path, application: str) -> None:
    store = SqliteCheckpoints(path)
    for position in range(20):
        store.save(CheckpointName(application, NAME.table), Checkpoint(position))


def test_saves_survive_a_kill(tmp_path: Path) -> None:
    """Every confirmed save is stored, and no checkpoint is partially written."""
    path = tmp_path / "c.db"
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=_save_for_ever, args=(path, its))
    process.start()
    its.close()
    said = 0
    while said < 50:
        said = mine.recv()
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    while mine.poll():
        try:
            said = mine.recv()
        except EOFError:
            break
    found = SqliteCheckpoints(path).load(NAME)
    assert found is not None
    assert found.generation is not None
    assert found.generation >= said
    assert found.marks[STREAM].acked_through == _key(found.generation)


def _key(number: int) -> RowKey:
    return RowKey(bytes.fromhex("ffffffffffff1fff8080808080808080"), number)


def _save_for_ever(path: Path, said: Connection) -> None:
    store = SqliteCheckpoints(path)
    number = 0
    while True:
        number += 1
        known = KnownGenerations(0, (number,))
        store.save(NAME, Checkpoint(0, known, {STREAM: Mark(_key(number))}))
        said.send(number)
