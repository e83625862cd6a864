"""Reads from a real server at a limited rate, and during overload."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from cdc_reader import ConnectionConfig, ReadConfig, TableReader
from cdc_reader.cluster import Connection
from cdc_reader.cluster.throttle import RECOVERY, Throttle
from cdc_reader.reading.retry import Stop
from cdc_reader.testing import EmbeddedScylla, Fault
from tests.cdc_reader.cluster.filled import filled
from tests.cdc_reader.support.seconds import Seconds
from tests.cdc_reader.support.tuned import tuning_of_module

pytestmark = pytest.mark.needs("faults")

COUNT = 60
LOG = "ks.t_scylla_cdc_log"


class Recording(Throttle):
    """A throttle that uses a simulated clock and records when each query was admitted."""

    def __init__(self, limit: float | None = None) -> None:
        self.clock = Seconds()
        self.admitted: list[float] = []
        super().__init__(limit, self.clock, self.clock.wait)

    def admit(self, stop: Stop) -> float:
        self.admitted.append(super().admit(stop))
        return self.admitted[-1]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A server whose table `ks.t` has 60 rows."""
    with filled(COUNT) as server:
        yield server


small_chunks = tuning_of_module(streams_per_query=8, in_flight=4)


@pytest.fixture
def connection(server: EmbeddedScylla) -> Iterator[Connection]:
    """A connection with pages of five rows."""
    read = ReadConfig(fetch_size=5)
    connection = Connection(ConnectionConfig(server.contact_point), read)
    yield connection
    connection.close()


def keys(connection: Connection) -> list[int]:
    """Return the clustering keys of all rows of the log."""
    batches = TableReader(connection, "ks.t").batches()
    return sorted(key for batch in batches for key in batch.column("c").to_pylist())


def test_every_page_counts_against_the_limit(connection: Connection) -> None:
    """Every page and every query of system tables counts against the limit."""
    connection.throttle = limited = Recording(4)
    assert keys(connection) == list(range(COUNT))
    assert len(limited.admitted) > COUNT / 5
    spans = zip(limited.admitted, limited.admitted[4:], strict=False)
    assert all(end - start >= 1 - 1e-6 for start, end in spans)


def test_the_limit_of_the_configuration_is_that_of_the_connection() -> None:
    """The configured limit is the limit of the connection. By default, there is no limit."""
    for limit, rate in ((None, math.inf), (2.5, 2.5)):
        read = ReadConfig(max_queries_per_second=limit)
        assert Connection("nowhere", read).throttle.rate == rate


def test_an_overloaded_node_is_queried_less_often(
    server: EmbeddedScylla, connection: Connection
) -> None:
    """Overload errors lower the rate until the recovery time has passed, and pages are retried."""
    connection.throttle = limited = Recording()
    with server.faults.during(fault := Fault("overloaded", LOG, times=3, after=2)):
        assert keys(connection) == list(range(COUNT))
        assert server.faults.struck(fault) == 3
    assert limited.rate < math.inf
    limited.clock.sleep(RECOVERY + 1)
    assert limited.rate == math.inf
    assert keys(connection) == list(range(COUNT))


def test_other_failures_do_not_slow_down(server: EmbeddedScylla, connection: Connection) -> None:
    """Failures other than overload do not lower the rate.

    A node that is down does not show that other nodes are overloaded.
    """
    connection.throttle = limited = Recording()
    faults = [Fault(kind, LOG) for kind in ("unavailable", "server-error", "read-timeout")]
    with server.faults.during(*faults):
        assert keys(connection) == list(range(COUNT))
    assert limited.rate == math.inf
