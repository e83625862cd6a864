"""Fixtures for consumers: servers, tables with logs, and processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from cdc_reader.config import ReadConfig
from cdc_reader.testing import EmbeddedScylla, ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from cdc_reader.config import ConnectionConfig
    from cdc_reader.testing import Scylla
    from tests.cdc_reader.consumer.processes import Processes

READ = ReadConfig(
    confidence_window=timedelta(0),
    poll_interval=timedelta(milliseconds=20),
    fetch_size=10,
    retry_deadline=timedelta(seconds=2),
)
"""Options without a confidence window, because the only writer awaits each response."""
PATIENCE = 120.0
"""A timeout, in seconds, that is generous for events that normally happen at once."""


def now() -> int:
    """Return the time in µs since 1970, rounded up so that every confirmed write is earlier."""
    return time.time_ns() // 1_000 + 1


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the server and of the consumer."""
    return ManualClock(1_700_000_000_000_000)


@pytest.fixture
def server(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """A separate server that uses the test's clock and has a keyspace."""
    with EmbeddedScylla(clock=clock) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        yield server


@pytest.fixture
def table(scylla: Scylla, keyspace: str) -> str:
    """The name of a table with a log."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (p int, c int, v int, PRIMARY KEY (p, c)) "
        "WITH cdc = {'enabled': true}"
    )
    return f"{keyspace}.t"


@pytest.fixture
def write(scylla: Scylla, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that writes `count` rows, numbered from `first`, to some partitions of a table.

    The rows are written one by one. The server assigns their timestamps: without a confidence
    window, a row with a client-set timestamp could be written behind the position.
    """
    monkeypatch.setattr(scylla.session, "use_client_timestamp", False)

    def write(table: str, count: int, *, first: int = 0, partitions: int = 7) -> None:
        insert = scylla.session.prepare(f"INSERT INTO {table} (p, c, v) VALUES (?, ?, ?)")
        for number in range(first, first + count):
            scylla.session.execute(insert, (number % partitions, number, number))

    return write


@pytest.fixture(params=["sqlite", "scylla"])
def processes(
    request: pytest.FixtureRequest, connection: ConnectionConfig, table: str, tmp_path: Path
) -> Processes:
    """Consumer processes, once for each kind of checkpoint store."""
    from tests.cdc_reader.consumer.processes import Processes

    return Processes(connection, table, tmp_path, request.param)
