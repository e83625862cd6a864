"""Readers, over sockets, of three nodes of which one lags for a while, and then another.

Meanwhile rows are written, the table's tablets are split and merged, it gets a column, and the
readers' processes are killed.
"""

from __future__ import annotations

import os
import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc_reader._time import SystemClock
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.reader import CdcReader
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.delivery import RowsRead
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session
from tests.cdc_reader.consumer.processes import Processes
from tests.connectors.pyspark_scylla_cdc.support.followed_query import (
    SHORT_STEPS,
    FollowedQuery,
    Role,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAG = float(os.environ.get("LAG", "45"))
"""The seconds for which each of two nodes lags."""
PAUSE = LAG / 9
TABLE = "ks.t"
LOG = f"{TABLE}_scylla_cdc_log"
READ = ReadConfig(confidence_window="1s", poll_interval="500ms")
KEYSPACE = (
    "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
    "'replication_factor': 1} AND tablets = {'initial': 4}"
)

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture
def cluster() -> Iterator[EmbeddedScylla]:
    """Three nodes with the table, whose sets of streams take effect at once."""
    with EmbeddedScylla(nodes=3, ring_delay_ms=0) as server:
        server.execute(KEYSPACE)
        columns = "(p int, c int, PRIMARY KEY (p, c))"
        server.execute(f"CREATE TABLE {TABLE} {columns} WITH cdc = {{'enabled': true}}")
        yield server


@pytest.mark.timeout(600)
def test_they_lose_and_repeat_nothing(
    spark: SparkSession, cluster: EmbeddedScylla, tmp_path: Path
) -> None:
    """A settled reader, a consumer and a Spark stream deliver each row once, with its columns."""
    options = {"hosts": cluster.contact_point, "keyspace": "ks", "table": "t", **SHORT_STEPS}
    writer, reader, consumer = Writer(cluster), Reader(cluster), Consumer(cluster, tmp_path)
    with FollowedQuery(tmp_path, options) as query:
        query.next_batch()
        with running(writer, reader, consumer):
            for number, node in enumerate(cluster.nodes[1:]):
                with cluster.lagging(node):
                    disturb(cluster, query, number, writer.add_column)
        last = "INSERT INTO ks.t (p, c) VALUES (0, -1) USING TIMESTAMP"
        query.await_written(lambda at: cluster.execute(f"{last} {at}"))

    kept = [row for row in log_of(cluster) if row[2] >= 0]
    rows = spark.read.parquet(str(tmp_path / "rows")).select("cdc$stream_id", "cdc$time", "c")
    by_spark = Counter((bytes(s), uuid.UUID(t), c) for s, t, c in rows.where("c >= 0").collect())
    assert by_spark == Counter(row[:3] for row in kept)
    assert Counter(reader.rows) == Counter(row[2:] for row in kept)
    assert all(w == (c if c >= writer.first else None) for c, w in reader.rows)
    assert consumer.handled() == len(kept)
    print(f"{len(kept)} rows, {writer.first} of them before the column was added")
    assert writer.first < len(kept)


@contextmanager
def running(*parts: Writer | Reader | Consumer) -> Iterator[None]:
    """Start the parts; after the context, finish one after another."""
    for part in parts:
        part.start()
    try:
        yield
    finally:
        for part in parts:
            part.finish()


def disturb(
    cluster: EmbeddedScylla, query: FollowedQuery, number: int, add_column: Callable[[], None]
) -> None:
    """Change the table while a node lags, for `LAG` seconds in all."""
    resize = (cluster.split_tablets, cluster.merge_tablets)
    for step in range(3):
        query.stay(PAUSE)
        resize[step % 2]("ks", "t")
        query.stay(PAUSE)
        if number == 0 and step == 0:
            add_column()
        if step == 1:
            query.kill_some(Role.SOURCE, random.Random(number))
        query.stay(PAUSE)


class Writer:
    """Inserts rows in a thread; from row `first` on, they have a value in the new column."""

    def __init__(self, cluster: EmbeddedScylla) -> None:
        self.first = 1 << 31
        self._cluster = cluster
        self._has_column = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()

    def add_column(self) -> None:
        self._cluster.execute(f"ALTER TABLE {TABLE} ADD w int")
        self._has_column = True

    def _write(self) -> None:
        number = 0
        while not self._stop.wait(0.01):
            p = number % 37
            if self._has_column:
                self.first = min(self.first, number)
                cql = f"INSERT INTO {TABLE} (p, c, w) VALUES ({p}, {number}, {number})"
            else:
                cql = f"INSERT INTO {TABLE} (p, c) VALUES ({p}, {number})"
            self._cluster.execute(cql)
            number += 1


class Reader:
    """Follows the log in a thread, and keeps the rows of complete windows."""

    def __init__(self, cluster: EmbeddedScylla) -> None:
        self.rows: list[tuple[int, int | None]] = []
        """The cells c and w of each row."""
        self._cluster = cluster
        self._reader = CdcReader(cluster.contact_point, TABLE, config=READ)
        self._checkpoint: Checkpoint | None = None
        self._thread = threading.Thread(target=self._follow)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Stop, and read the rest from the last checkpoint."""
        self._reader.stop()
        self._thread.join()
        self._reader.close()
        self._reader = CdcReader(self._cluster.contact_point, TABLE, config=READ)
        self._follow(self._cluster.clock.now() + 1)
        self._reader.close()

    def _follow(self, end: int | None = None) -> None:
        found: list[tuple[int, int | None]] = []
        for delivery in self._reader.table.follow(self._checkpoint, end):
            if isinstance(delivery, RowsRead):
                rows = delivery.batch.to_pylist()
                found += [(row["c"], row.get("w")) for row in rows]
            else:
                self.rows, self._checkpoint = self.rows + found, delivery.checkpoint
                found = []


class Consumer:
    """A consumer whose process is killed every 11 seconds, and started again."""

    def __init__(self, cluster: EmbeddedScylla, path: Path) -> None:
        connection = ConnectionConfig(cluster.contact_point)
        self._processes = Processes(connection, TABLE, path, "sqlite")
        self._runs = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._kill)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Stop killing it, and let it handle the rest."""
        self._stop.set()
        self._thread.join()
        self._begin(end=SystemClock().now()).join()

    def handled(self) -> int:
        """Return the number of rows that were handled.

        A run may repeat only the last change that each worker of an earlier run handled.
        """
        runs = [self._processes.handled(run) for run in range(self._runs)]
        times = Counter(row for lines in runs for _, row in lines)
        may_repeat = {row for lines in runs for row in dict(lines).values()}
        assert {row for row, count in times.items() if count > 1} <= may_repeat
        return len(times)

    def _kill(self) -> None:
        while not self._stop.is_set():
            process = self._begin()
            self._stop.wait(11)
            process.kill()
            process.join()

    def _begin(self, **more: Any) -> BaseProcess:
        process = self._processes.begin(self._runs, read=READ, **more)
        self._runs += 1
        return process


def log_of(cluster: EmbeddedScylla) -> list[tuple[bytes, uuid.UUID, int, int | None]]:
    """Return the stream, the time and the cells c and w of each row of the log."""
    session = open_session(cluster.host, cluster.port)
    found = session.execute(f'SELECT "cdc$stream_id", "cdc$time", c, w FROM {LOG}')
    rows = [tuple(row) for row in found]
    session.cluster.shutdown()
    return rows
