"""A streaming query whose processes are killed again and again."""

from __future__ import annotations

import os
import random
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_reader.testing import EmbeddedScylla, Fault
from cdc_reader.testing.cql_session import open_session
from tests.connectors.pyspark_scylla_cdc.support.followed_query import (
    SHORT_STEPS,
    FollowedQuery,
    Role,
)

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from pyspark.sql import SparkSession

KILLS = int(os.environ.get("KILLS", "4"))
LONGEST = 1.5  # seconds from a micro-batch's start to the latest kill: about one micro-batch
KILLED = (Role.SOURCE, Role.TASKS, Role.DRIVER, Role.TASKS)
TABLE = "ks.t"
LOG = f"{TABLE}_scylla_cdc_log"
KEY = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no")

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def cluster() -> Iterator[EmbeddedScylla]:
    """A separate cluster, whose generations take effect at once."""
    with EmbeddedScylla(vnodes=4, ring_delay_ms=0) as server:
        yield server


@pytest.fixture
def session(cluster: EmbeddedScylla) -> Iterator[Session]:
    """A session whose writes get timestamps from the cluster. The fixture creates the table."""
    session = open_session(cluster.host, cluster.port)
    session.use_client_timestamp = False
    session.execute(
        "CREATE KEYSPACE ks WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
    )
    session.execute(
        f"CREATE TABLE {TABLE} (pk int, ck int, m map<int, text>, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'postimage': true}"
    )
    yield session
    session.cluster.shutdown()


@pytest.fixture
def query(cluster: EmbeddedScylla, tmp_path: Path) -> FollowedQuery:
    """A query that must survive the kills. The test starts it."""
    options = {
        "hosts": cluster.contact_point,
        "keyspace": "ks",
        "table": "t",
        **SHORT_STEPS,
    }
    return FollowedQuery(tmp_path, options)


@pytest.mark.timeout(180 + 30 * KILLS)  # on a busy machine Spark takes half a minute to start
def test_killed_and_restarted(
    spark: SparkSession, cluster: EmbeddedScylla, session: Session, query: FollowedQuery
) -> None:
    """The query delivers each row exactly once, and only the kills make it fail.

    While rows are written, the driver or workers are killed at random moments, connections are
    dropped, and the streams are replaced.
    """
    seed = int(os.environ.get("KILL_SEED") or random.randrange(10**6))
    print(f"KILL_SEED={seed}")
    chance = random.Random(seed)
    roles = killed(chance)
    with query:
        with writing(session):
            for number, role in enumerate(roles):
                if number == KILLS // 2:
                    cluster.join(vnodes=4)
                cluster.faults.add(Fault("drop", LOG, times=2, after=chance.randrange(9)))
                run_and_kill(query, role, chance)
        last = "SET m = {0: 'x'} WHERE pk = 0 AND ck = 0"
        query.await_written(
            lambda at: session.execute(f"UPDATE {TABLE} USING TIMESTAMP {at} {last}")
        )
    cluster.faults.clear()  # faults that have not occurred yet

    rows = spark.read.parquet(str(query.folder / "rows")).select(*KEY)
    delivered = Counter(
        (bytes(stream), uuid.UUID(time), number) for stream, time, number in rows.collect()
    )
    key = ", ".join(f'"{name}"' for name in KEY)
    kept = Counter(tuple(row) for row in session.execute(f"SELECT {key} FROM {LOG}"))
    print(f"{len(kept)} rows; killed: {dict(Counter(role.name for role in roles))}")
    assert delivered == kept
    assert len(delivered) > 1_000
    assert len(query.failures) <= KILLS - roles.count(Role.DRIVER)


@contextmanager
def writing(session: Session) -> Iterator[None]:
    """Insert, change and delete rows in the background."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.wait(0.02):
            number += 1
            key = f"pk = {number % 37} AND ck = {number % 11}"
            session.execute(
                f"DELETE FROM {TABLE} WHERE {key}"
                if number % 7 == 0
                else f"UPDATE {TABLE} SET m = m + {{{number}: 'x'}} WHERE {key}"
            )

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def killed(chance: random.Random) -> list[Role]:
    """Return the roles to kill, in random order."""
    roles = [KILLED[number % len(KILLED)] for number in range(KILLS)]
    chance.shuffle(roles)
    return roles


def run_and_kill(query: FollowedQuery, role: Role, chance: random.Random) -> None:
    """Wait for a few micro-batches, then kill processes with this role during the next one."""
    for _ in range(chance.randint(1, 3)):
        while not query.next_batch().rows:
            pass
    query.kill_within(LONGEST, role, chance)
