"""`CdcConsumer` with patterns such as ``shop.*``, over a real socket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from queue import Queue
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.checkpoints.store import CheckpointName, Owner
from cdc_reader.cluster import SchemaSource
from cdc_reader.config import ConnectionConfig
from cdc_reader.consumer import CdcConsumer, ConsumerConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import (
    CheckpointError,
    ConfigurationError,
    HandlerError,
    LeaseHeldError,
    TableNotFoundError,
)
from cdc_reader.metrics import CHECKPOINTS, LAG, ROWS, MemoryMetrics
from cdc_reader.testing import EmbeddedScylla, ManualClock
from tests.cdc_reader.consumer.conftest import PATIENCE, READ, now

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

Write = Callable[..., None]
COLUMNS = "(p int, c int, v int, PRIMARY KEY (p, c))"
WITH_LOG = "WITH cdc = {'enabled': true}"


class Seen:
    """A handler that records the table and the number of each change."""

    def __init__(self) -> None:
        self.all: list[tuple[str, int]] = []
        self._new: Queue[tuple[str, int]] = Queue()

    def __call__(self, change: Change) -> None:
        found = change.table.name, change.key["c"]
        self.all.append(found)
        self._new.put(found)

    def next(self) -> tuple[str, int]:
        """Wait for the next change."""
        return self._new.get(timeout=PATIENCE)


@pytest.fixture
def create(scylla: Scylla, keyspace: str) -> Callable[..., str]:
    """Creates a table, by default with a log, and returns its name."""

    def create(name: str, log: str = WITH_LOG) -> str:
        scylla.session.execute(f"CREATE TABLE {keyspace}.{name} {COLUMNS} {log}")
        return f"{keyspace}.{name}"

    return create


@pytest.fixture
def unreadable(scylla: Scylla, keyspace: str) -> Callable[[str], None]:
    """Creates a table that looks as if it had a log, which no reader can use."""

    def create(name: str) -> None:
        scylla.session.execute(
            f'CREATE TABLE {keyspace}.{name} (p int PRIMARY KEY, "cdc$time" int)'
        )
        scylla.session.execute(
            f'CREATE TABLE {keyspace}.{name}_scylla_cdc_log ("cdc$stream_id" blob PRIMARY KEY)'
        )

    return create


def consumer(connection: ConnectionConfig, tables: Any, seen: Seen, **options: Any) -> CdcConsumer:
    """Return a consumer that runs until it is stopped."""
    settings: dict[str, Any] = {
        "application": "app",
        "read": READ,
        "checkpoints": MemoryCheckpoints(),
    }
    return CdcConsumer(connection, tables, seen, **(settings | options))


@contextmanager
def running(followed: CdcConsumer) -> Iterator[list[BaseException]]:
    """Run a consumer meanwhile, and stop it; its error is in the list afterwards."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            followed.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield errors
    finally:
        followed.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_pattern_follows_what_exists_and_what_comes_later(
    scylla: Scylla,
    connection: ConnectionConfig,
    keyspace: str,
    create: Callable[..., str],
    unreadable: Callable[[str], None],
    write: Write,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Tables join when they are created or get a log.

    A table that is dropped ends quietly, and one that cannot be read is left out with one line.
    """
    seen, execute = Seen(), scylla.session.execute
    write(create("t"), 1)
    plain = create("plain", "")
    unreadable("bad")
    followed = consumer(connection, f"{keyspace}.*", seen)
    with running(followed) as errors:
        assert seen.next() == ("t", 0)
        write(create("u"), 1, first=1)
        assert seen.next() == ("u", 1)
        write(plain, 1, first=2)
        execute(f"ALTER TABLE {plain} {WITH_LOG}")
        write(plain, 1, first=3)
        assert seen.next() == ("plain", 3)
        execute(f"DROP TABLE {keyspace}.t")
        unreadable("a_bad")  # a look finds it before the next table
        write(create("v"), 1, first=4)
        assert seen.next() == ("v", 4)
        write(f"{keyspace}.u", 1, first=5)
        assert seen.next() == ("u", 5)
    assert not errors
    left_out = [text for text in caplog.messages if "table_left_out" in text]
    assert len(left_out) == 2
    for name, text in zip(("bad", "a_bad"), left_out, strict=True):
        assert f"table='{keyspace}.{name}' reason='column cdc$time of table" in text
    found = [text for text in caplog.messages if "event='table_found'" in text]
    assert [f"table='{keyspace}.{name}'" in text for name, text in zip("upv", found, strict=True)]
    [started] = [text for text in caplog.messages if "event='started'" in text]
    assert f"tables='{keyspace}.*'" in started


def test_a_dropped_table_falls_no_further_behind(
    server: EmbeddedScylla, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The lag of a table that is gone stays as it is."""
    caplog.set_level("INFO")
    seen, metrics = Seen(), MemoryMetrics()
    for name in "tu":
        server.execute(f"CREATE TABLE ks.{name} {COLUMNS} {WITH_LOG}")
        server.execute(f"INSERT INTO ks.{name} (p, c) VALUES (1, 1)")
    gone, other = TableName("ks", "t"), TableName("ks", "u")
    connection = ConnectionConfig(server.contact_point)
    clock.advance(1_000_000)
    followed = consumer(connection, "ks.*", seen, clock=clock, metrics=metrics)
    with running(followed) as errors:
        assert {seen.next(), seen.next()} == {("t", 1), ("u", 1)}
        server.execute("DROP TABLE ks.t")
        while "table_gone" not in caplog.text:
            assert not errors
        clock.advance(7_200_000_000)
        saved = metrics[CHECKPOINTS, other]
        while metrics[CHECKPOINTS, other] < saved + 2:  # each save comes after the lags are set
            assert not errors
    assert metrics[LAG, gone] < 7_200


def test_a_name_and_a_pattern_continue_at_the_same_position(
    connection: ConnectionConfig, keyspace: str, create: Callable[..., str], write: Write
) -> None:
    """A checkpoint belongs to a table, whether a name or a pattern led to it."""
    seen, store = Seen(), MemoryCheckpoints()
    orders, other = create("orders"), create("other")
    tables: list[Any] = [f"{keyspace}.ord*", orders, [other, f"{keyspace}.*"], f"{keyspace}.*"]
    for number, each in enumerate(tables):
        write(orders, 1, first=number)
        consumer(connection, each, seen, checkpoints=store, end=now()).run()
    assert seen.all == [("orders", number) for number in range(len(tables))]


def test_a_pattern_without_tables_waits(
    connection: ConnectionConfig,
    keyspace: str,
    create: Callable[..., str],
    write: Write,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A pattern may match nothing: up to an end, nothing is read; without one, tables may come.

    What is written to a later table before it is found is read, also from a start of ``now``.
    """
    seen = Seen()
    consumer(connection, f"{keyspace}.*", seen, end=now()).run()
    consumer(connection, "nowhere.*", seen, end=now()).run()
    caplog.clear()
    with running(consumer(connection, f"{keyspace}.*", seen, start="now")) as errors:
        while "event='started'" not in caplog.text:
            assert not errors
        write(create("t"), 1)
        assert seen.next() == ("t", 0)
    assert not errors


def test_quoted_names_are_patterns_too(
    scylla: Scylla, connection: ConnectionConfig, write: Write
) -> None:
    """Names keep their case, in the keyspace and in the pattern."""
    execute, seen = scylla.session.execute, Seen()
    execute(
        'CREATE KEYSPACE "Odd" WITH replication = '
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    )
    try:
        for number, name in enumerate(("My_A", "my_b")):
            execute(f'CREATE TABLE "Odd"."{name}" {COLUMNS} {WITH_LOG}')
            write(f'"Odd"."{name}"', 1, first=number)
        consumer(connection, '"Odd"."My*"', seen, end=now()).run()
        assert seen.all == [("My_A", 0)]
    finally:
        execute('DROP KEYSPACE "Odd"')


def test_later_tables_are_merged_by_write_time(
    connection: ConnectionConfig,
    keyspace: str,
    create: Callable[..., str],
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change waits until a look has shown whether a new table has earlier ones."""
    may_look, logged = threading.Event(), SchemaSource.logged
    may_look.set()

    def look(source: SchemaSource, name: str) -> list[TableName]:
        assert may_look.wait(PATIENCE)
        return logged(source, name)

    monkeypatch.setattr(SchemaSource, "logged", look)
    seen, metrics, table = Seen(), MemoryMetrics(), create("t")
    read = evolve(READ, delivery="ordered")
    followed = consumer(connection, f"{keyspace}.*", seen, read=read, metrics=metrics)
    with running(followed) as errors:
        write(table, 1)
        assert seen.next() == ("t", 0)
        may_look.clear()
        write(create("u"), 1, first=1)
        write(table, 1, first=2)
        while metrics[ROWS, TableName.parse(table)] < 2:
            assert not errors
        may_look.set()
        assert [seen.next(), seen.next()] == [("u", 1), ("t", 2)]
    assert not errors


def test_a_snapshot_of_a_later_table_is_taken(
    connection: ConnectionConfig,
    keyspace: str,
    create: Callable[..., str],
    write: Write,
    scylla: Scylla,
) -> None:
    """With a snapshot, a table that gets a log later begins with the rows that it has."""
    seen, plain = Seen(), create("t", "")
    write(plain, 2, partitions=1)
    with running(consumer(connection, f"{keyspace}.*", seen, snapshot="initial")) as errors:
        scylla.session.execute(f"ALTER TABLE {plain} {WITH_LOG}")
        assert [seen.next(), seen.next()] == [("t", 0), ("t", 1)]
    assert not errors


def test_a_table_that_another_consumer_follows_is_waited_for(
    connection: ConnectionConfig,
    keyspace: str,
    create: Callable[..., str],
    write: Write,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A later table whose lease is held delays no other, and is followed when it is released."""
    seen, store = Seen(), MemoryCheckpoints()
    name = CheckpointName("app", TableName(keyspace, "t"))
    other = Owner("other", "host", 1, 0)
    assert store.acquire(name, other, timedelta(hours=1)) == other
    followed = consumer(connection, f"{keyspace}.*", seen, checkpoints=store)
    with running(followed) as errors:
        write(create("a"), 1)
        assert seen.next() == ("a", 0)
        write(create("t"), 1, first=1)
        for number in (2, 3):
            write(create(f"u{number}"), 1, first=number)
            assert seen.next() == (f"u{number}", number)
        store.release(name, other)
        assert seen.next() == ("t", 1)
    assert not errors
    assert caplog.text.count("waiting_for_another_consumer") == 1


def test_a_consumer_that_must_not_wait_ends(
    connection: ConnectionConfig, keyspace: str, create: Callable[..., str], write: Write
) -> None:
    """With `on_held` set to ``fail``, a later table that another consumer follows is an error."""
    seen, store = Seen(), MemoryCheckpoints()
    name, other = CheckpointName("app", TableName(keyspace, "t")), Owner("other", "host", 1, 0)
    assert store.acquire(name, other, timedelta(hours=1)) == other
    write(create("a"), 1)
    config = ConsumerConfig(on_held="fail")
    followed = consumer(connection, f"{keyspace}.*", seen, checkpoints=store, config=config)

    def create_later() -> None:
        seen.next()
        create("t")

    meanwhile = threading.Thread(target=create_later)
    meanwhile.start()
    with pytest.raises(LeaseHeldError, match="is already followed by application 'app'"):
        followed.run()
    meanwhile.join(PATIENCE)


def test_other_errors_end_the_run(
    connection: ConnectionConfig, keyspace: str, create: Callable[..., str], write: Write
) -> None:
    """Errors of handlers, of stores and of named tables leave no table out."""
    write(create("t"), 1)
    pattern, end = f"{keyspace}.*", {"end": now()}

    class Refuses(Seen):
        def __call__(self, change: Change) -> None:
            raise ValueError(change.key)

    class Breaks(MemoryCheckpoints):
        def save_as(self, *_: Any) -> bool:
            raise CheckpointError("the store is gone")

    refusing = consumer(connection, pattern, Refuses(), config=ConsumerConfig(attempts=1), **end)
    with pytest.raises(HandlerError):
        refusing.run()
    with pytest.raises(CheckpointError, match="the store is gone"):
        consumer(connection, pattern, Seen(), checkpoints=Breaks(), **end).run()
    with pytest.raises(TableNotFoundError):
        consumer(connection, [pattern, f"{keyspace}.nothing"], Seen(), **end).run()
    with pytest.raises(ConfigurationError, match=r"tables is '\*\.t': name one keyspace"):
        consumer(connection, "*.t", Seen())


def test_a_table_that_was_created_again_is_left_out(
    scylla: Scylla,
    connection: ConnectionConfig,
    keyspace: str,
    create: Callable[..., str],
    write: Write,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The position belongs to the table that was dropped, as for a table that is named."""
    seen, store = Seen(), MemoryCheckpoints()
    write(create("t"), 1)
    consumer(connection, f"{keyspace}.*", seen, checkpoints=store, end=now()).run()
    scylla.session.execute(f"DROP TABLE {keyspace}.t")
    write(create("t"), 1, first=1)
    write(create("u"), 1, first=2)
    consumer(connection, f"{keyspace}.*", seen, checkpoints=store, end=now()).run()
    assert seen.all == [("t", 0), ("u", 2)]
    [told] = [text for text in caplog.messages if "table_left_out" in text]
    assert "was dropped and created again" in told
