"""A streaming query on several machines survives the loss of each part of the cluster.

One query follows a log throughout. Rows are written while a part of the cluster fails. Afterwards,
the sink contains each row exactly once.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO

import pytest
from attrs import define

from tests.cluster.log import ROWS, NumberedLog
from tests.cluster.machine import Isolation, best_isolation
from tests.cluster.reader import PROGRAM as READING
from tests.cluster.reader import Reader
from tests.cluster.standalone import Standalone
from tests.connectors.pyspark_scylla_cdc.support.followed_query import FollowedQuery

PROGRAM = Path(__file__).parent / "programs" / "following.py"
EXECUTOR = "CoarseGrainedExecutorBackend"
WORKER = "deploy.worker.Worker"
SILENCE = 30.0  # seconds without a network
LONGEST = 1.5  # seconds from a micro-batch's start to the latest fault: about one micro-batch
OPTIONS = {
    "confidenceWindow": "1s",
    "maxPartitions": "4",
}
NOTICED = {
    # A disconnected machine counts as lost before it returns, and then registers as a new one.
    "spark.storage.blockManagerHeartbeatTimeoutMs": "15s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
}

pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.xdist_group("faults"),
    pytest.mark.timeout(600),
]


class ClusterQuery(FollowedQuery):
    """A followed query whose driver runs on a machine of the cluster."""

    def __init__(self, cluster: Standalone, options: dict[str, str]) -> None:
        super().__init__(cluster.store, options)
        self._cluster = cluster

    def _launch(self, errors: IO[bytes]) -> Popen[str]:
        where = str(self._cluster.driver.store)
        return self._cluster.application(
            PROGRAM, where, self._options, conf=NOTICED, stdout=PIPE, stderr=errors
        )


@define
class Followed:
    """A log, and a query that follows it."""

    cluster: Standalone
    log: NumberedLog
    query: ClusterQuery
    reader: Reader
    chance: random.Random

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Run the block during a micro-batch with rows. Then check the rows in the sink."""
        with self.log.growing():
            self.run(3)
            self.query.stay(self.chance.uniform(0, LONGEST))
            yield
            self.run(3)
        self.query.await_written(self.log.write)
        self.check()

    def run(self, batches: int) -> None:
        """Wait until the query has finished this many micro-batches with rows."""
        for _ in range(batches):
            while not self.query.next_batch().rows:
                pass

    def check(self) -> None:
        """Check that the sink contains exactly the written rows."""
        found = self.reader.read("kept")
        print(f"{self.log.written} rows were written")
        assert found == self.log.whole
        assert self.log.written > ROWS
        assert self.query.failures == []


@pytest.fixture(scope="module")
def reader(cluster: Standalone, log: NumberedLog) -> Iterator[Reader]:
    """An application without executors, which reads the sink."""
    local = {"spark.master": "local[1]"}
    with (cluster.folder / "reading.log").open("w") as errors:
        driver = cluster.application(READING, conf=local, stdin=PIPE, stdout=PIPE, stderr=errors)
        yield Reader(driver, cluster.driver.store, log)
        driver.communicate()


@pytest.fixture(scope="module")
def followed(cluster: Standalone, log: NumberedLog, reader: Reader) -> Iterator[Followed]:
    """A query that has read all rows written so far."""
    seed = int(os.environ.get("KILL_SEED") or random.randrange(10**6))
    print(f"KILL_SEED={seed}")
    with ClusterQuery(cluster, {**log.options, **OPTIONS}) as query:
        query.await_written(log.write)
        yield Followed(cluster, log, query, reader, random.Random(seed))


def test_executor_is_killed(followed: Followed) -> None:
    """If an executor is killed, another executor takes over its tasks."""
    with followed.failing():
        machine = followed.chance.choice(followed.cluster.workers)
        assert machine.kill(EXECUTOR)


def test_worker_is_killed(followed: Followed) -> None:
    """If a worker is killed, its executor ends too. The other machine continues meanwhile."""
    machine = followed.chance.choice(followed.cluster.workers)
    with followed.failing():
        assert machine.kill(WORKER)
    with followed.failing():
        followed.cluster.start_worker(machine)


def test_driver_is_killed(followed: Followed) -> None:
    """If the driver is killed, a new driver continues from the checkpoint."""
    with followed.failing():
        followed.query.kill()
        followed.query.start()


@pytest.mark.skipif(
    best_isolation() is not Isolation.NETWORK,
    reason="a machine's network is cut in a network namespace, which only root can make",
)
def test_worker_loses_its_network(followed: Followed) -> None:
    """No row is lost if a worker reaches neither Spark nor ScyllaDB for half a minute."""
    machine = followed.chance.choice(followed.cluster.workers)
    with followed.failing():
        followed.cluster.network.cut(machine)
        try:
            followed.query.stay(SILENCE)
        finally:
            followed.cluster.network.mend(machine)


def test_node_joins_scylladb(followed: Followed) -> None:
    """If a node joins, the log continues in new streams, some of them on the new node."""
    with followed.failing():
        followed.log.scylla.join(vnodes=4)
