"""A checkpoint passed as a start must belong to the table and contain valid values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve

from cdc_reader import CdcReader, ReadConfig
from cdc_reader.checkpoints import SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError
from cdc_reader.reading.cursor import (
    LAST_KEY,
    Checkpoint,
    KnownGenerations,
    LateState,
    Mark,
    RowKey,
)
from cdc_reader.reading.delivery import WindowComplete
from cdc_reader.streams.stream import StreamId
from cdc_reader.testing import EmbeddedScylla

NOW = 1_795_221_125_091_067
HUGE = 10**30
NO_TIME = RowKey(UUID("5c2e7e9a-2f0b-41f0-8080-808080808080").bytes, 0)
STREAM = StreamId(bytes(16))
AT_ONCE = ReadConfig(confidence_window=timedelta(0))
CREATE = "CREATE TABLE ks.{} (p int PRIMARY KEY) WITH cdc = {{'enabled': true}}"


@pytest.fixture
def server() -> Iterator[EmbeddedScylla]:
    """A server with two tables."""
    with EmbeddedScylla(ring_delay_ms=0) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        for name in ("t1", "t2"):
            server.execute(CREATE.format(name))
        yield server


@pytest.fixture
def open_reader(server: EmbeddedScylla) -> Iterator[Callable[[str], CdcReader]]:
    """A function that opens readers of a table."""
    opened: list[CdcReader] = []

    def make(table: str) -> CdcReader:
        opened.append(CdcReader(server.contact_point, table, config=AT_ONCE))
        return opened[-1]

    yield make
    for reader in opened:
        reader.close()


def reached(reader: CdcReader) -> Checkpoint:
    """Return the checkpoint at the end of a read up to the current time."""
    *_, last = reader.follow("-1m", "now")
    assert isinstance(last, WindowComplete)
    return last.checkpoint


def test_another_tables(open_reader: Callable[[str], CdcReader]) -> None:
    """The error for a checkpoint of another table shows the names and ids of both tables."""
    given, other = reached(open_reader("ks.t1")), open_reader("ks.t2").table
    message = (
        rf"^the checkpoint belongs to table ks\.t1 with id {given.table_id}, but the table to read "
        rf"is ks\.t2 with id {other.schema.base.id}: give a checkpoint of ks\.t2, "
    )
    with pytest.raises(CheckpointError, match=message) as error:
        list(other.follow(given, "now"))
    assert "\n" not in str(error.value)


def test_one_without_a_name(open_reader: Callable[[str], CdcReader]) -> None:
    """The error for a checkpoint without a table name states both possible reasons.

    Either the checkpoint belongs to another table, or the table was recreated.
    """
    given = evolve(reached(open_reader("ks.t1")), table=None)
    with pytest.raises(CheckpointError, match=r"another cluster's, or ks\.t2 was dropped"):
        list(open_reader("ks.t2").table.follow(given, "now"))


def test_of_a_snapshot(open_reader: Callable[[str], CdcReader]) -> None:
    """A checkpoint of a snapshot is checked like any other checkpoint."""
    given = open_reader("ks.t1").table.begin_snapshot()
    with pytest.raises(CheckpointError, match=r"belongs to table ks\.t1 .* is ks\.t2 with id"):
        list(open_reader("ks.t2").table.snapshot(given).deliveries())


def test_of_a_table_created_again(
    server: EmbeddedScylla, open_reader: Callable[[str], CdcReader]
) -> None:
    """A dropped table's checkpoint is rejected for a new table with the same name but a new id."""
    reader = open_reader("ks.t1")
    given = reached(reader)
    server.execute("DROP TABLE ks.t1")
    server.execute(CREATE.format("t1"))
    with pytest.raises(CheckpointError, match=r"ks\.t1 was dropped and created again"):
        list(open_reader("ks.t1").table.follow(given, "now"))


@pytest.mark.parametrize(
    ("handmade", "message"),
    [
        ({"position": HUGE}, rf"position is {HUGE}: expected microseconds since 1970"),
        ({"position": -1}, r"position is -1: "),
        ({"position": 1 << 20_000}, r"position is a int: "),
        ({"position": "now"}, r"position is 'now': "),
        ({"position": True}, r"position is True: "),
        ({"position": NOW, "generations": KnownGenerations(NOW, (HUGE,))}, "generations is 1000"),
        ({"position": NOW, "late": LateState.begin(NOW, -1, 0)}, "late rows is -1: "),
        (
            {"position": NOW, "marks": {STREAM: Mark(NO_TIME)}},
            r"mark is '[0-9a-f]{32}'",
        ),
        (
            {"position": NOW, "marks": {STREAM: Mark(rows=frozenset([NO_TIME]))}},
            "mark",
        ),
        ({"position": NOW, "marks": {STREAM: Mark(RowKey(b"1", 0))}}, "mark is '31'"),
    ],
)
def test_handmade(
    open_reader: Callable[[str], CdcReader], handmade: dict[str, Any], message: str
) -> None:
    """A checkpoint with values that no reader writes is rejected at once with a one-line error."""
    with pytest.raises(CheckpointError, match=message) as error:
        open_reader("ks.t1").table.follow(Checkpoint(**handmade), "now")
    assert "\n" not in str(error.value)


def test_handmade_in_a_store(tmp_path: Any) -> None:
    """An invalid checkpoint in a store is rejected when it is loaded."""
    name = CheckpointName("app", TableName("ks", "t1"))
    store = SqliteCheckpoints(tmp_path / "progress.db")
    store.save(name, Checkpoint(NOW, marks={STREAM: Mark(LAST_KEY)}))
    for column, value in (("position", "'now'"), ("cursor", "'t1'"), ("position", "-7")):
        with store._transaction("BEGIN IMMEDIATE") as database:
            database.execute(f"UPDATE checkpoints SET {column} = {value}")
        with pytest.raises(CheckpointError, match=rf"^the checkpoint's {column} is "):
            store.load(name)
        store.save(name, Checkpoint(NOW))
    store.close()


def test_what_readers_write_is_valid() -> None:
    """Checkpoints that readers write are valid, even with the smallest and largest times."""
    times = (timeuuid.MAX_MICROS, NOW, 0)
    for position in times:
        key = RowKey(timeuuid.make(position, bytes(8)).bytes, -(1 << 31))
        Checkpoint(position, marks={STREAM: Mark(LAST_KEY, frozenset([key]))}).check()
