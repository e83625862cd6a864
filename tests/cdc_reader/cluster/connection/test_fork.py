"""A connection that is used in a forked process, as with multiprocessing or a preloading server."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection as Pipe

from cdc_reader import CdcReader, ConnectionConfig
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
