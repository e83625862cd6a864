"""Bounded reads wait for generations whose streams are stored but not announced yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from cdc_reader import CdcReader, ConnectionConfig, ReadConfig
from cdc_reader._time import Clock, SystemClock
from cdc_reader.errors import StoppedError
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla, ManualClock
from tests.cdc_reader.announcing import Announcing

SECOND = 1_000_000
MINUTE = 60 * SECOND
KEYS = list(range(20))
Read = Callable[[CdcReader, Window], Iterable[Any]]


def _changes(reader: CdcReader, window: Window) -> Iterator[int]:
    for change in reader.changes(window.start, window.end):
        yield change.key["p"]


def _batches(reader: CdcReader, window: Window) -> Iterator[int]:
    for batch in reader.batches(window.start, window.end):
        yield from batch["p"].to_pylist()


def _change_batches(reader: CdcReader, window: Window) -> Iterator[int]:
    for batch in reader.change_batches(window.start, window.end, include_delta=True):
        yield from batch["p"].to_pylist()


def _tasks(reader: CdcReader, window: Window) -> Iterator[int]:
    for batch in reader.table.read(reader.table.plan(window)):
        yield from batch["p"].to_pylist()


READS: dict[str, Read] = {
    "batches": _batches,
    "change_batches": _change_batches,
    "changes": _changes,
    "tasks": _tasks,
}


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the server and of the readers."""
    return ManualClock(SystemClock().now())


@pytest.fixture
def server(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """A server with rows in a generation that is stored in part, but not announced."""
    with EmbeddedScylla(clock=clock, ring_delay_ms=0) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
            "'replication_factor': 1} AND tablets = {'enabled': false}"
        )
        server.execute("CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}")
        clock.advance(MINUTE)
        server.hold_publication(rows=1)
        server.join(vnodes=3)
        clock.advance(MINUTE)
        for key in KEYS:
            server.execute(f"INSERT INTO ks.t (p) VALUES ({key})")
        clock.advance(2 * MINUTE)
        yield server


@pytest.fixture
def open_reader(server: EmbeddedScylla) -> Iterator[Callable[..., CdcReader]]:
    """Opens readers of the table."""
    opened: list[CdcReader] = []

    def make(clock: Clock, **config: Any) -> CdcReader:
        connection = ConnectionConfig(server.contact_point)
        opened.append(CdcReader(connection, "ks.t", config=ReadConfig(**config), clock=clock))
        return opened[-1]

    yield make
    for reader in opened:
        reader.close()


def _until_now(clock: Clock) -> Window:
    return Window(clock.now() - 10 * MINUTE, clock.now())


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_rows_of_a_generation_that_is_announced_late(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    caplog: pytest.LogCaptureFixture,
    read: Read,
) -> None:
    """The rows are read after the announcement; a log event says what the read waits for."""
    announcing = Announcing(server, clock, after=3)
    assert sorted(read(open_reader(announcing), _until_now(clock))) == KEYS
    assert announcing.sleeps == 3
    assert caplog.text.count("read_waits_for_generation") == 1


def test_the_wait_ends(
    server: EmbeddedScylla, clock: ManualClock, open_reader: Callable[..., CdcReader]
) -> None:
    """After `publication_wait` the read leaves out a generation that is still not announced."""
    announcing, began = Announcing(server, clock, after=0), clock.now()
    reader = open_reader(announcing, publication_wait="5m", poll_interval="10s")
    assert list(_batches(reader, _until_now(clock))) == []
    assert 0 < clock.now() - began <= 3 * MINUTE
    assert list(_batches(reader, _until_now(clock))) == []


def test_a_window_from_before_is_read_at_once(
    server: EmbeddedScylla, clock: ManualClock, open_reader: Callable[..., CdcReader]
) -> None:
    """A window that ends before the generation does not wait for it."""
    announcing = Announcing(server, clock, after=1)
    began = clock.now() - 4 * MINUTE
    list(_batches(open_reader(announcing), Window(began - 2 * MINUTE, began + MINUTE // 2)))
    assert announcing.sleeps == 0


def test_a_stop_ends_the_wait(
    server: EmbeddedScylla, clock: ManualClock, open_reader: Callable[..., CdcReader]
) -> None:
    """The read is incomplete, so it raises an error."""

    class Stopping(Announcing):
        def sleep(self, micros: int, wake: threading.Event) -> None:
            reader.stop()
            super().sleep(micros, wake)
            assert wake.is_set()

    reader = open_reader(Stopping(server, clock, 0))
    with pytest.raises(StoppedError):
        list(_batches(reader, _until_now(clock)))
