"""During an outage, a stop is not delayed by any retry, request or connection attempt.

In these tests, deadlines and pauses between retries last for hours. If a stop waits for one of
them, `ended` times out.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve, frozen

from cdc_reader import CdcReader, ConnectionConfig, ReadConfig, Replicator
from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import MemoryCheckpoints, ScyllaCheckpoints
from cdc_reader.cluster.write import CqlWriter
from cdc_reader.consumer import CdcConsumer, ConsumerConfig, handling
from cdc_reader.consumer.aio import AsyncCdcConsumer, AsyncChanges
from cdc_reader.consumer.handling import Handler, Together
from cdc_reader.cql.statement import Statement
from cdc_reader.cql.types import Native
from cdc_reader.errors import CheckpointError, StoppedError
from cdc_reader.reading import retry
from cdc_reader.reading.retry import Interruption
from cdc_reader.testing import EmbeddedScylla, Fault
from tests.cdc_reader.support.line import Line

pytestmark = pytest.mark.needs("faults")

HOUR, YEAR = timedelta(hours=1), timedelta(days=365)
PATIENCE = 120.0
READ = ReadConfig(
    confidence_window=timedelta(0), poll_interval=timedelta(milliseconds=10), retry_deadline=YEAR
)
LOG = "ks.t_scylla_cdc_log"
OUTAGE = Fault("unavailable", LOG, times=None)
COUNT = 20
SETTLED = ("--from", "earliest", "--confidence-window", "0s")


def patient(contact_point: str) -> ConnectionConfig:
    """Return a configuration that waits for an hour for each response."""
    return ConnectionConfig(contact_point, request_timeout=HOUR)


@pytest.fixture(autouse=True)
def pauses_of_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connecting take an hour, and pauses before retries up to eleven days."""
    monkeypatch.setattr("cdc_reader.cluster.opening.CONNECT_TIMEOUT", HOUR.total_seconds())
    for name in ("_FIRST_PAUSE", "_LONGEST_PAUSE"):
        monkeypatch.setattr(retry, name, 1e6)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A server whose table `ks.t` has rows."""
    # With more shards, scylla-driver also connects to another port, which bypasses the proxy.
    with EmbeddedScylla(vnodes=4, shards=1) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        server.execute("CREATE TABLE ks.t (p int PRIMARY KEY, v int) WITH cdc = {'enabled': true}")
        server.execute("CREATE TABLE ks.u (p int PRIMARY KEY) WITH cdc = {'enabled': true}")
        server.execute("CREATE TABLE ks.copy (p int PRIMARY KEY, v int)")
        for number in range(COUNT):
            server.execute(f"INSERT INTO ks.t (p, v) VALUES ({number}, {number})")
        yield server


@pytest.fixture
def connection(server: EmbeddedScylla) -> ConnectionConfig:
    """A connection with timeouts and deadlines of an hour."""
    return patient(server.contact_point)


@pytest.fixture
def line(server: EmbeddedScylla) -> Iterator[Line]:
    """A proxy to the server."""
    line = Line((server.host, server.port))
    yield line
    line.close()


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A port that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


class Running(threading.Thread):
    """A call in a thread, and the error that the call raised."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - the test checks it
            self.error = error

    def until(self, event: Callable[[], object]) -> None:
        """Wait until the condition holds."""
        while not event():
            self.join(0.001)
            assert self.is_alive(), self.error

    def ended(self) -> BaseException | None:
        """Wait for the call to end, and return its error."""
        self.join(PATIENCE)
        assert not self.is_alive()
        return self.error


@frozen
class Insert:
    """A handler, or a function for dead letters, that inserts a row."""

    target: CqlWriter

    def __call__(self, *_: object) -> None:
        self.write()

    def write(self, _: object = None) -> None:
        self.target.write([Statement("INSERT INTO ks.u (p) VALUES (?)", (Native("int"),), (1,))])

    def interrupted_by(self, interruption: Interruption) -> Insert:
        return Insert(self.target.interrupted_by(interruption))


@contextmanager
def outage(server: EmbeddedScylla, fault: Fault = OUTAGE) -> Iterator[Callable[[], int]]:
    """Activate a fault, and yield a function that returns how often the fault has occurred."""
    with server.faults.during(fault):
        yield lambda: server.faults.struck(fault)


def following(reader: CdcReader) -> Running:
    """Start a thread that follows the log until it is stopped."""
    return Running(lambda: list(reader.follow()))


def test_a_retry_does_not_delay_stopping_a_reader(
    server: EmbeddedScylla, connection: ConnectionConfig
) -> None:
    """A stop ends `follow` during a retry, without an error, and the reader can be used again."""
    with CdcReader(connection, "ks.t", config=READ) as reader:
        with outage(server) as struck:
            follow = following(reader)
            follow.until(struck)
            reader.stop()
            assert follow.ended() is None
        assert sum(batch.num_rows for batch in reader.batches()) == COUNT


@pytest.mark.parametrize("statement", [LOG, "system_schema.columns"])
def test_a_late_response_does_not_delay_stopping_a_reader(
    server: EmbeddedScylla, connection: ConnectionConfig, statement: str
) -> None:
    """A stop does not wait for a late response, whether to a page request or to another query."""
    late = Fault("delay", statement, times=None, seconds=HOUR.total_seconds())
    with CdcReader(connection, "ks.t", config=READ) as reader, outage(server, late) as struck:
        follow = following(reader)
        follow.until(struck)
        reader.stop()
        assert follow.ended() is None


def test_a_server_that_hangs_does_not_delay_stopping_a_reader(line: Line) -> None:
    """A server that hangs delays neither stopping nor closing a reader."""
    reader = CdcReader(patient(line.contact_point), "ks.t", config=READ)
    handed_on = threading.Event()

    def follow() -> None:
        for _ in reader.follow():
            handed_on.set()

    running = Running(follow)
    running.until(handed_on.is_set)
    line.hold()
    running.until(line.holds.is_set)
    closing = Running(reader.close)
    assert running.ended() is None
    assert closing.ended() is None


def test_connecting_does_not_delay_stopping_a_reader(silent: socket.socket) -> None:
    """A stop ends a connection attempt to a server that accepts connections but never responds."""
    reader = CdcReader(patient(f"127.0.0.1:{silent.getsockname()[1]}"), "ks.t", config=READ)
    follow = following(reader)
    accepted, _ = silent.accept()
    with accepted:
        closing = Running(reader.close)
        assert follow.ended() is None
        assert closing.ended() is None


def test_several_tables_are_stopped_together(
    server: EmbeddedScylla, connection: ConnectionConfig
) -> None:
    """A stop ends an iterator over the rows of several tables."""
    with CdcReader(connection, "ks.t", "ks.u", config=READ) as reader, outage(server) as struck:
        follow = Running(lambda: list(reader.follow()))
        follow.until(struck)
        reader.stop()
        assert follow.ended() is None


@pytest.mark.parametrize(
    "read",
    [
        lambda reader: list(reader.batches()),
        lambda reader: list(reader.changes()),
    ],
    ids=["batches", "changes"],
)
def test_a_stopped_bounded_read_raises_stopped_error(
    server: EmbeddedScylla, connection: ConnectionConfig, read: Callable[[CdcReader], object]
) -> None:
    """A stopped bounded read raises StoppedError, because its rows are incomplete."""
    with CdcReader(connection, "ks.t", config=READ) as reader, outage(server) as struck:
        running = Running(lambda: read(reader))
        running.until(struck)
        reader.stop()
        assert isinstance(running.ended(), StoppedError)


def test_a_stopped_read_stays_stopped(connection: ConnectionConfig) -> None:
    """A read that began before a stop does not go on when the reader is used again."""
    with CdcReader(connection, "ks.t", config=evolve(READ, fetch_size=2)) as reader:
        stopped = reader.batches()
        next(stopped)
        reader.stop()
        assert sum(batch.num_rows for batch in reader.batches()) == COUNT
        with pytest.raises(StoppedError):
            next(stopped)


@pytest.mark.parametrize("read", ["batches", "changes", "follow", "follow_changes"])
def test_nothing_is_delivered_after_a_stop(connection: ConnectionConfig, read: str) -> None:
    """After a stop nothing is delivered, not even pages that were already received."""
    small = evolve(READ, fetch_size=2)
    with CdcReader(connection, "ks.t", config=small) as reader:
        items = getattr(reader, read)()
        next(items)
        reader.stop()
        with pytest.raises(StoppedError if read in {"batches", "changes"} else StopIteration):
            next(items)


def test_a_dead_letter_in_an_outage_does_not_delay_stopping_a_consumer(
    connection: ConnectionConfig, line: Line
) -> None:
    """A stop interrupts `dead_letter`, and the consumer ends without an error."""
    target = CqlWriter(patient(line.contact_point), READ)
    insert = Insert(target)
    insert()
    line.hold()

    def fail(_: Change) -> None:
        raise LookupError

    stuck = consumer(
        connection,
        fail,
        dead_letter=insert,
        config=ConsumerConfig(attempts=1),
    )
    running = Running(stuck.run)
    running.until(line.holds.is_set)
    stuck.stop()
    assert running.ended() is None
    assert Running(target.close).ended() is None


def consumer(
    connection: ConnectionConfig, handler: Callable[[Change], object], **more: Any
) -> CdcConsumer:
    """Return a consumer that reads the whole log and does not end by itself."""
    options: Any = {"application": "app", "read": READ, "checkpoints": MemoryCheckpoints()} | more
    return CdcConsumer(connection, "ks.t", handler, **options)


def test_an_outage_does_not_delay_stopping_a_consumer(
    server: EmbeddedScylla, connection: ConnectionConfig
) -> None:
    """An outage does not delay stopping a consumer, which ends without an error."""
    stuck = consumer(connection, print)
    with outage(server) as struck:
        running = Running(stuck.run)
        running.until(struck)
        stuck.stop()
        assert running.ended() is None


def test_an_unreachable_store_does_not_delay_stopping_at_the_start(
    connection: ConnectionConfig, silent: socket.socket
) -> None:
    """A stop during the first access to an unreachable store ends the run without an error.

    Nothing has been handled, so there is nothing to save.
    """
    nowhere = patient(f"127.0.0.1:{silent.getsockname()[1]}")
    stuck = consumer(
        connection, print, checkpoints=ScyllaCheckpoints(nowhere, "ks", retry_deadline=YEAR)
    )
    running = Running(stuck.run)
    accepted, _ = silent.accept()
    with accepted:
        stuck.stop()
        assert running.ended() is None


@pytest.mark.parametrize("hangs", [False, True])
def test_an_unreachable_store_does_not_delay_stopping_a_consumer(
    connection: ConnectionConfig, line: Line, *, hangs: bool
) -> None:
    """A consumer stops even if its store is down or hangs.

    The error says that handled changes were not saved.
    """
    store = ScyllaCheckpoints(
        evolve(patient(line.contact_point), consistency="ONE"), "ks", retry_deadline=YEAR
    )
    handled = threading.Event()

    def handle(_: Change) -> None:
        if not handled.is_set():
            line.hold() if hangs else line.close()
            handled.set()

    each = ConsumerConfig(workers=1, checkpoint_interval=timedelta(0))
    name = f"hangs-{hangs}"  # the other run still holds its lease
    stuck = consumer(connection, handle, checkpoints=store, config=each, application=name)
    running = Running(stuck.run)
    running.until(line.holds.is_set if hangs else handled.is_set)
    stuck.stop()
    error = running.ended()
    assert isinstance(error, CheckpointError)
    assert "stopped before the checkpoint of ks.t was saved" in str(error)
    closing = Running(store.close)
    assert closing.ended() is None


@pytest.mark.parametrize(
    "handler",
    [
        lambda insert: insert,
        lambda insert: insert.write,
        lambda insert: Together(insert.write, 9),
        lambda insert: Replicator(insert.target, {"ks.t": "ks.copy"}).apply,
        lambda insert: Together(Replicator(insert.target, {"ks.t": "ks.copy"}).apply_all, 9),
    ],
    ids=["object", "method", "together", "replicator", "replicator-together"],
)
def test_an_unreachable_target_does_not_delay_stopping_a_consumer(
    connection: ConnectionConfig, line: Line, handler: Callable[[Insert], Handler]
) -> None:
    """A stop interrupts a handler's write to an unreachable target, without an error."""
    target = CqlWriter(patient(line.contact_point), READ)
    insert = Insert(target)
    insert()
    line.hold()
    stuck = consumer(connection, handler(insert))
    running = Running(stuck.run)
    running.until(line.holds.is_set)
    stuck.stop()
    assert running.ended() is None
    assert Running(target.close).ended() is None


def test_a_pause_between_retries_does_not_delay_stopping_a_consumer(
    connection: ConnectionConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop ends a pause between retries, and the next run delivers the change again."""
    called = threading.Event()

    def fail(_: Change) -> None:
        called.set()
        raise LookupError

    monkeypatch.setattr(handling, "_PAUSES", (3_600.0, 3_600.0))
    stuck = consumer(connection, fail)
    running = Running(stuck.run)
    running.until(called.is_set)
    stuck.stop()
    assert running.ended() is None


@pytest.mark.parametrize("is_loop", [True, False])
def test_an_outage_does_not_delay_a_cancellation(
    server: EmbeddedScylla, connection: ConnectionConfig, *, is_loop: bool
) -> None:
    """A cancellation ends a loop over changes, or a consumer with a coroutine handler, at once."""
    options: Any = {"application": "app", "read": READ, "checkpoints": MemoryCheckpoints()}

    async def handle(_: Change) -> None: ...

    async def main() -> None:
        if is_loop:
            await anext(aiter(AsyncChanges(connection, "ks.t", **options)))
        else:
            await AsyncCdcConsumer(connection, "ks.t", handle, **options).run()

    loop = asyncio.new_event_loop()
    following = loop.create_task(main())
    with outage(server) as struck:
        running = Running(lambda: loop.run_until_complete(following))
        running.until(struck)
        loop.call_soon_threadsafe(following.cancel)
        assert isinstance(running.ended(), asyncio.CancelledError)
    loop.close()


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("tail", *SETTLED), OUTAGE),
        (("status", "--watch"), Fault("delay", "system_schema", times=None, seconds=PATIENCE)),
    ],
    ids=["tail", "status"],
)
def test_sigterm_ends_the_command_in_an_outage(
    server: EmbeddedScylla, arguments: tuple[str, ...], fault: Fault
) -> None:
    """SIGTERM ends a command whose reads would otherwise be retried, or awaited, for long."""
    run = "from cdc_reader.cli import main; main()"
    with outage(server, fault) as struck:
        command = subprocess.Popen(
            [sys.executable, "-c", run, *arguments, "ks.t", "--hosts", server.contact_point],
            stderr=subprocess.DEVNULL,
        )
        try:
            Running(command.wait).until(struck)
            os.kill(command.pid, signal.SIGTERM)
            assert command.wait(PATIENCE / 2) == 0
        finally:
            command.kill()
