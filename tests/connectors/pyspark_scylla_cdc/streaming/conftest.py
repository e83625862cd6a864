"""A separate cluster with a manual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from cassandra.cluster import Session

from cdc_reader._time import SystemClock
from cdc_reader.testing import EmbeddedScylla, ManualClock
from cdc_reader.testing.cql_session import open_session
from pyspark_scylla_cdc.clusters import cluster_of
from pyspark_scylla_cdc.options.source_options import SourceOptions
from tests.connectors.pyspark_scylla_cdc.support.followed_log import FollowedLog
from tests.connectors.pyspark_scylla_cdc.support.readers import stream_reader

Make = Callable[..., FollowedLog]


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
    """A session whose writes get their timestamps from the cluster's clock."""
    session = open_session(cluster.host, cluster.port)
    session.use_client_timestamp = False
    yield session
    session.cluster.shutdown()


@pytest.fixture
def follow(cluster: EmbeddedScylla, session: Session, clock: ManualClock) -> Iterator[Make]:
    """Follows the table from the current time on, with additional options."""
    opened = set()
    known = {
        "hosts": cluster.contact_point,
        "keyspace": "ks",
        "table": "t",
        "consistencyLevel": "ONE",
        "format": "changes",
    }

    def follow(**more: str) -> FollowedLog:
        has_start = "snapshot" in more or "startingOffsets" in more
        first = {} if has_start else {"startingTimestamp": "latest"}
        parsed = SourceOptions.parse({**known, **first, **more})
        opened.add(cluster_of(parsed.connection(), parsed.read).connection)

        followed = FollowedLog(partial(stream_reader, parsed, clock), clock, session)
        followed.start()
        return followed

    yield follow
    for connection in opened:
        connection.close()
