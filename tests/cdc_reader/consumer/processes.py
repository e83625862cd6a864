"""Consumers in separate processes that record the changes they handle."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sqlite3
import threading
from contextlib import closing
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import ScyllaCheckpoints, SqliteCheckpoints
from cdc_reader.config import ConnectionConfig
from cdc_reader.consumer import CdcConsumer, ConsumerConfig
from tests.cdc_reader.consumer.conftest import READ

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__])


class Processes:
    """The consumer processes of one table, their checkpoints, and their handlers' output files."""

    def __init__(self, connection: ConnectionConfig, table: str, path: Path, store: str) -> None:
        self.connection, self.table, self.path, self.store = connection, table, path, store

    def file(self, run: int) -> Path:
        return self.path / f"run-{run}"

    def handled(self, run: int) -> list[tuple[str, str]]:
        """Return the worker and the row of each change that a run handled, in order."""
        file = self.file(run)
        lines = file.read_text().splitlines() if file.exists() else []
        return [(worker, row) for worker, row in (line.split(" ", 1) for line in lines)]

    @property
    def still(self) -> Path:
        """The path of a file. While the file exists, each handler call suspends the process."""
        return self.path / "still"

    def begin(self, run: int, terminated_after: int = 0, **options: Any) -> BaseProcess:
        """Start a consumer process that sends itself SIGTERM after `terminated_after` changes."""
        begun = CONTEXT.Process(target=_consume, args=(self, run, terminated_after, options))
        begun.start()
        return begun


def _consume(
    processes: Processes, run: int, terminated_after: int, options: dict[str, Any]
) -> None:
    numbers = itertools.count(1)
    file = os.open(processes.file(run), os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def handler(change: Change) -> None:
        if processes.still.exists():
            # Another thread could receive a signal sent to the process, and this thread would
            # continue for a while.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        worker = threading.current_thread().name
        row = f"{change.key['p']} {change.timestamp} {change.seqs}"
        os.write(file, f"{worker} {row}\n".encode())
        if next(numbers) == terminated_after:
            os.kill(os.getpid(), signal.SIGTERM)

    keyspace = processes.table.partition(".")[0]
    store: SqliteCheckpoints | ScyllaCheckpoints
    if processes.store == "sqlite":
        store = SqliteCheckpoints(processes.path / "checkpoints.db")
    else:
        store = ScyllaCheckpoints(processes.connection, keyspace)
    config = ConsumerConfig(workers=2, checkpoint_interval=timedelta(0), lease="1s")
    settings: dict[str, Any] = {
        "application": "app",
        "read": READ,
        "config": config,
        "checkpoints": store,
    }
    CdcConsumer(processes.connection, processes.table, handler, **(settings | options)).run()
    store.close()


def await_some(processes: Processes, run: int, owner: BaseProcess, count: int) -> None:
    """Wait until a run has handled `count` changes or has ended."""
    while len(processes.handled(run)) < count and owner.is_alive():
        owner.join(0.002)


def await_stillness(processes: Processes, owner: BaseProcess) -> None:
    """Wait until the process is suspended and no thread is saving.

    A save in progress would keep SQLite's file locked.
    """
    pid = owner.pid or 0
    while not is_still(pid) or is_locked(processes.path / "checkpoints.db"):
        if is_still(pid):
            os.kill(pid, signal.SIGCONT)  # continue until the next change
        owner.join(0.002)


def is_still(pid: int) -> bool:
    """Return True if the process is suspended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def is_locked(file: Path) -> bool:
    """Return True if the file exists and a process is writing to it."""
    if not file.exists():
        return False
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False
