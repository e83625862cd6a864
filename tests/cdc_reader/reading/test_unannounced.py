"""Bounded reads wait for generations whose streams are stored but not yet announced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from cdc_reader import CdcReader, ChangeFormat, ConnectionConfig, ReadConfig
from cdc_reader._time import BEGINNING, FOREVER, Clock, SystemClock, format_timestamp
from cdc_reader.errors import StoppedError
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla, ManualClock
from tests.cdc_reader.support.announcing import Announcing
from tests.cdc_reader.support.tuned import tuned

SECOND = 1_000_000
MINUTE = 60 * SECOND
KEYS = list(range(20))
Read = Callable[[CdcReader, Window], Iterable[Any]]
WITH_DELTA = ChangeFormat(include_delta=True)


def _changes(reader: CdcReader, window: Window) -> Iterator[int]:
    for change in reader.changes(window.start, window.end):
        yield change.key["p"]


def _batches(reader: CdcReader, window: Window) -> Iterator[int]:
    for batch in reader.batches(window.start, window.end):
        yield from batch["p"].to_pylist()


def _change_batches(reader: CdcReader, window: Window) -> Iterator[int]:
    for batch in reader.change_batches(window.start, window.end, format=WITH_DELTA):
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
def server(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """A server with rows in a generation that is partly stored but not announced."""
    with EmbeddedScylla(clock=clock, ring_delay_ms=0) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
            "'replication_factor': 1} AND tablets = {'enabled': false}"
        )
        server.execute("CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}")
        clock.advance(MINUTE)
        write_unannounced(server, clock)
        yield server


def write_unannounced(server: EmbeddedScylla, clock: ManualClock) -> None:
    """Write `KEYS` to a partly stored generation, which began three minutes earlier."""
    server.hold_publication(rows=1)
    server.join(vnodes=3)
    clock.advance(MINUTE)
    for key in KEYS:
        server.execute(f"INSERT INTO ks.t (p) VALUES ({key})")
    clock.advance(2 * MINUTE)


@pytest.fixture
def open_reader(server: EmbeddedScylla) -> Iterator[Callable[..., CdcReader]]:
    """A function that opens readers of the table."""
    opened: list[CdcReader] = []

    def make(clock: Clock, at: EmbeddedScylla = server, **config: Any) -> CdcReader:
        connection = ConnectionConfig(at.contact_point)
        opened.append(CdcReader(connection, "ks.t", config=ReadConfig(**config), clock=clock))
        return opened[-1]

    yield make
    for reader in opened:
        reader.close()


@pytest.fixture
def impatient() -> Iterator[None]:
    """Let readers wait for a generation for one minute."""
    with tuned(publication_wait=MINUTE):
        yield


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
    """A read waits for a generation that is announced late, and logs what it waits for."""
    announcing = Announcing(server, clock, after=3)
    assert sorted(read(open_reader(announcing), _until_now(clock))) == KEYS
    assert announcing.sleeps == 3
    assert caplog.text.count("read_waits_for_generation") == 1


def test_the_wait_ends(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After ten minutes the read continues, and a warning says which rows may be missing."""
    announcing, began = Announcing(server, clock, after=0), clock.now()
    reader = open_reader(announcing)
    assert list(_batches(reader, _until_now(clock))) == []
    assert 0 <= clock.now() - began - 7 * MINUTE < SECOND
    assert caplog.text.count("generation_not_announced") == 1
    assert list(_batches(reader, _until_now(clock))) == []
    assert 0 <= clock.now() - began - 7 * MINUTE < SECOND
    assert caplog.text.count("generation_not_announced") == 2


@pytest.mark.usefixtures("impatient")
def test_a_generation_that_was_followed_by_another(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A read that starts after a generation's end does not wait for its announcement."""
    server.join(vnodes=2)
    first, second = server.complete_publication()
    clock.advance(MINUTE)
    server.execute(
        "DELETE FROM system_distributed.cdc_generation_timestamps "
        f"WHERE key = 'timestamps' AND time = {first.timestamp}"
    )
    since, announcing = second.timestamp * 1_000, Announcing(server, clock, after=0)
    reader = open_reader(announcing)
    list(_batches(reader, Window(since, clock.now())))
    assert "generation_not_announced" not in caplog.text
    list(_batches(reader, Window(since - 1, clock.now())))
    assert caplog.text.count("generation_not_announced") == 1
    assert announcing.sleeps == 0


@pytest.mark.usefixtures("impatient")
def test_several_generations_that_stay_unannounced(
    server: EmbeddedScylla,
    clock: ManualClock,
    open_reader: Callable[..., CdcReader],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Warnings name exactly the time spans of the unannounced generations."""
    clock.advance(MINUTE)
    server.join(vnodes=2)
    clock.advance(MINUTE)
    reader = open_reader(Announcing(server, clock, after=0))
    window = _until_now(clock)
    assert list(_batches(reader, window)) == []
    told = [r for r in caplog.messages if "generation_not_announced" in r]
    assert len(told) == 2
    first, second = server.complete_publication()
    starts = [format_timestamp(each.timestamp * 1_000) for each in (first, second)]
    ends = [starts[1], format_timestamp(window.end)]
    for message, start, end in zip(told, starts, ends, strict=True):
        assert start in message
        assert end in message


def test_a_cluster_upgraded_from_4_3(open_reader: Callable[..., CdcReader]) -> None:
    """After an upgrade from 4.3, the first read finds unannounced generations in the new tables."""
    clock = ManualClock(SystemClock().now())
    with EmbeddedScylla(clock=clock, ring_delay_ms=0, version="4.3") as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', "
            "'replication_factor': 1}"
        )
        server.execute("CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}")
        clock.advance(MINUTE)
        server.upgrade_streams()
        write_unannounced(server, clock)
        reader = open_reader(Announcing(server, clock, after=1), at=server)
        assert sorted(_changes(reader, _until_now(clock))) == KEYS


def test_a_slow_clock(
    server: EmbeddedScylla, clock: ManualClock, open_reader: Callable[..., CdcReader]
) -> None:
    """A read without an end waits for a generation that, by the reader's clock, has not begun."""
    slow = Announcing(server, clock, after=1, behind=3 * MINUTE + 30 * SECOND)
    assert sorted(_changes(open_reader(slow), Window(BEGINNING, FOREVER))) == KEYS


def test_a_window_from_before_is_read_at_once(
    server: EmbeddedScylla, clock: ManualClock, open_reader: Callable[..., CdcReader]
) -> None:
    """A window that ends before the generation's first rows is read without waiting."""
    announcing = Announcing(server, clock, after=1)
    began = clock.now() - 4 * MINUTE
    list(_batches(open_reader(announcing), Window(began - 2 * MINUTE, began + MINUTE // 2)))
    assert announcing.sleeps == 0


def test_a_stop_ends_the_wait(
    server: EmbeddedScylla, clock: ManualClock, open_reader: Callable[..., CdcReader]
) -> None:
    """A stop ends the wait with an error, because the read is incomplete."""

    class Stopping(Announcing):
        def sleep(self, micros: int, wake: threading.Event) -> None:
            reader.stop()
            super().sleep(micros, wake)
            assert wake.is_set()

    reader = open_reader(Stopping(server, clock, 0))
    with pytest.raises(StoppedError):
        list(_batches(reader, _until_now(clock)))
