"""A connection that is used in a forked process, as with multiprocessing or a preloading server."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection as Pipe
from threading import Event

from cdc_reader import CdcReader, ConnectionConfig
from cdc_reader.cluster import Connection
from cdc_reader.config import ReadConfig
from cdc_reader.reading.retry import NEVER
from tests.cdc_reader.conftest import Execute

_PATIENCE = 60


def _count(reader: CdcReader, answer: Pipe) -> None:
    answer.send(sum(1 for _ in reader.changes()))


def test_parent_and_child_both_read(
    connection: ConnectionConfig, keyspace: str, execute: Execute
) -> None:
    """A child opens a session of its own, and the parent's session still works afterwards."""
    execute(
        "CREATE TABLE {t} (p int PRIMARY KEY) WITH cdc = {'enabled': true}",
        *(f"INSERT INTO {{t}} (p) VALUES ({p})" for p in range(3)),
    )
    with CdcReader(connection, f"{keyspace}.t") as reader:
        assert sum(1 for _ in reader.changes()) == 3
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=_count, args=(reader, theirs))
        child.start()
        try:
            assert ours.poll(_PATIENCE), "the child neither reads nor fails"
            assert ours.recv() == 3
            child.join(_PATIENCE)
            assert child.exitcode == 0
        finally:
            child.kill()
        assert sum(1 for _ in reader.changes()) == 3


def _ask(opened: Connection, moment: int, answer: Pipe) -> None:
    answer.send(opened.schema_version(moment))


def test_a_child_does_not_wait_for_what_its_parent_asks(connection: ConnectionConfig) -> None:
    """A thread of the parent that asks for all tables does not run in the child."""
    opened, asking, goes_on = Connection(connection, ReadConfig()), Event(), Event()
    moment = opened.shared.moment(1, 0)

    def ask() -> str:
        asking.set()
        assert goes_on.wait(2 * _PATIENCE)
        return "the parent's"

    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(opened.shared.answer, "schema_version", moment, ask, NEVER)
        assert asking.wait(_PATIENCE)
        ours, theirs = multiprocessing.Pipe()
        forked = multiprocessing.get_context("fork")
        child = forked.Process(target=_ask, args=(opened, moment, theirs))
        child.start()
        try:
            assert ours.poll(_PATIENCE), "the child waits for its parent"
            assert ours.recv() != "the parent's"
        finally:
            child.kill()
            goes_on.set()
        assert asked.result() == "the parent's"
    opened.close()
