"""A streaming query killed over and over, and restarted from its checkpoint."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_reader.testing import EmbeddedScylla, Fault
from cdc_reader.testing.cql_session import open_session

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from pyspark.sql import SparkSession

KILLS = int(os.environ.get("KILLS", "6"))
LONGEST = 1.5  # seconds into a micro-batch, the time one takes
SCRIPT = Path(__file__).with_name("following_query.py")
TABLE = "ks.t"

pytestmark = pytest.mark.spark


@pytest.fixture
def cluster() -> Iterator[EmbeddedScylla]:
    """A cluster of the test's own, whose generations operate at once."""
    with EmbeddedScylla(vnodes=4, ring_delay_ms=0) as server:
        yield server


@pytest.fixture
def session(cluster: EmbeddedScylla) -> Iterator[Session]:
    """A session in which the cluster gives writes their time; the table is there."""
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


@pytest.mark.timeout(120 + 60 * KILLS)  # as many starts of Spark, and one more
def test_killed_and_restarted(
    spark: SparkSession, cluster: EmbeddedScylla, session: Session, tmp_path: Path
) -> None:
    """Driver or workers killed at any moment, connections dropped, streams replaced under way:
    started again, the query has delivered each row exactly once.
    """
    seed = int(os.environ.get("KILL_SEED") or random.randrange(10**6))
    print(f"KILL_SEED={seed}")
    moments = random.Random(seed)
    options = {
        "hosts": cluster.contact_point,
        "keyspace": "ks",
        "table": "t",
        "consistencyLevel": "ONE",
        "confidenceWindow": "1s",
        "minAdvance": "200ms",
        "maxPartitions": "2",
    }
    log = f"{TABLE}_scylla_cdc_log"
    with writing(session):
        for number in range(KILLS):
            if number == KILLS // 2:
                cluster.join(vnodes=4)
            cluster.faults.add(Fault("drop", log, times=2, after=moments.randrange(9)))
            follow_and_kill(tmp_path, options, moments, workers=number % 3 == 2)
    cluster.faults.clear()
    with start(tmp_path, options, finish=True) as finished:
        assert finished.communicate(timeout=120)[0]
    assert finished.returncode == 0

    rows = spark.read.parquet(str(tmp_path / "rows")).select(
        "cdc$stream_id", "cdc$time", "cdc$batch_seq_no"
    )
    delivered = Counter(
        (bytes(stream), uuid.UUID(time), number) for stream, time, number in rows.collect()
    )
    kept = session.execute(f'SELECT "cdc$stream_id", "cdc$time", "cdc$batch_seq_no" FROM {log}')
    assert delivered == Counter(tuple(row) for row in kept)
    assert len(delivered) > 1_000


@contextmanager
def writing(session: Session) -> Iterator[None]:
    """Rows are inserted, changed and deleted all the while."""
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


def follow_and_kill(
    folder: Path, options: dict[str, str], moments: random.Random, *, workers: bool
) -> None:
    """Start the query, let it do some micro-batches, and kill it somewhere in the next one.

    A query ends by itself when only its workers are killed while they work.
    """
    with start(folder, options) as process:
        assert process.stdout is not None
        for _ in range(moments.randint(1, 4)):  # that it started, then its micro-batches
            assert process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0, LONGEST))
        if workers:
            kill_workers(process.pid)
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode != 0


def kill_workers(session: int) -> None:
    """Kill the Python processes that Spark started, as far as there are any at this moment."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_worker = b"pyspark.daemon" in (folder / "cmdline").read_bytes()
            if is_worker and os.getsid(int(folder.name)) == session:
                os.kill(int(folder.name), signal.SIGKILL)


def start(folder: Path, options: dict[str, str], *, finish: bool = False) -> subprocess.Popen[str]:
    """The query, in a process group of its own, so that Spark's JVM dies with it."""
    return subprocess.Popen(
        [sys.executable, SCRIPT, folder, "finish" if finish else "follow", json.dumps(options)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
