"""Reads survive transient faults, alone and combined."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from cdc_reader import ConnectionConfig, ReadConfig, TableReader
from cdc_reader.cluster import Connection
from cdc_reader.testing import EmbeddedScylla, Fault
from tests.cdc_reader.cluster.filled import filled
from tests.cdc_reader.support.seconds import Seconds, throttle
from tests.cdc_reader.support.tuned import tuning_of_module

pytestmark = pytest.mark.needs("faults")

COUNT = 300
LOG = "ks.t_scylla_cdc_log"
CONFIG = ReadConfig(fetch_size=10)

small_chunks = tuning_of_module(streams_per_query=8, in_flight=2)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A server whose table `ks.t` has 300 rows."""
    with filled(COUNT) as server:
        yield server


def read(server: EmbeddedScylla) -> list[tuple[int, int]]:
    """Return (p, c) of all rows of the log, in the order in which they are read."""
    with closing(Connection(ConnectionConfig(server.contact_point), CONFIG)) as connection:
        connection.throttle = throttle(Seconds())  # overload advances only this clock
        batches = TableReader(connection, "ks.t", config=CONFIG).batches()
        return [(row["p"], row["c"]) for batch in batches for row in batch.to_pylist()]


def check(rows: list[tuple[int, int]]) -> None:
    """Check that each row was read once, and that the rows of each key are in write order."""
    assert sorted(c for _, c in rows) == list(range(COUNT))
    for key in range(10):
        written = [c for p, c in rows if p == key]
        assert written == sorted(written)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("drop", LOG, after=5),
        Fault("delay", LOG, times=5, after=3, seconds=0.05),
        Fault("overloaded", LOG, times=3, after=4),
        Fault("read-timeout", LOG, times=3, after=4),
        Fault("unavailable", LOG, times=3, after=4),
        Fault("server-error", LOG, times=3, after=4),
        Fault("unprepared", LOG, times=3, after=4),
    ],
    ids=lambda fault: fault.kind.value,
)
def test_a_transient_fault_loses_and_repeats_nothing(server: EmbeddedScylla, fault: Fault) -> None:
    """No row is lost or repeated if a transient fault occurs while pages are read."""
    with server.faults.during(fault):
        check(read(server))
        assert server.faults.struck(fault) == fault.times


def test_many_faults_lose_and_repeat_nothing(server: EmbeddedScylla) -> None:
    """No row is lost or repeated if many queries of the log and the generations fail in turn."""
    faults = [
        Fault("server-error", "system_distributed", times=2),
        Fault("overloaded", LOG, times=2, after=2),
        Fault("drop", LOG, after=6),
        Fault("unprepared", LOG, after=7),
        Fault("read-timeout", LOG, times=2, after=9),
        Fault("drop", LOG, after=12),
        Fault("unavailable", LOG, times=2, after=14),
    ]
    with server.faults.during(*faults):
        check(read(server))
        assert [server.faults.struck(fault) for fault in faults] == [f.times for f in faults]
