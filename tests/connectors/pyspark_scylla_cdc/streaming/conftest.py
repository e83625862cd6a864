"""A separate cluster with a manual clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cassandra.cluster import Session

from cdc_reader._time import SystemClock
from cdc_reader.testing import EmbeddedScylla, ManualClock
from cdc_reader.testing.cql_session import open_session


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the cluster and of the readers."""
    return ManualClock(SystemClock().now())


@pytest.fixture
def cluster(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """A separate cluster, whose generations take effect at once."""
    with EmbeddedScylla(clock=clock, vnodes=4, ring_delay_ms=0) as server:
        yield server


@pytest.fixture
def session(cluster: EmbeddedScylla) -> Iterator[Session]:
    """A session whose writes get their timestamps from the cluster, by its clock."""
    session = open_session(cluster.host, cluster.port)
    session.use_client_timestamp = False
    yield session
    session.cluster.shutdown()
