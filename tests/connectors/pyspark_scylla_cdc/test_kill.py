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
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_reader.testing import Scylla

KILLS = 6
LONGEST = 1.5  # seconds into a micro-batch, the time one takes
SCRIPT = Path(__file__).with_name("following_query.py")

pytestmark = pytest.mark.spark


@pytest.mark.timeout(600)  # seven starts of Spark
def test_killed_and_restarted(
    spark: SparkSession, scylla: Scylla, options: dict[str, str], tmp_path: Path
) -> None:
    """Killed at any moment and started again, a query delivers each row exactly once."""
    seed = int(os.environ.get("KILL_SEED") or random.randrange(10**6))
    print(f"KILL_SEED={seed}")
    moments = random.Random(seed)
    table = f"{options['keyspace']}.t"
    scylla.session.execute(
        f"CREATE TABLE {table} (pk int, ck int, m map<int, text>, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'postimage': true}"
    )
    brisk = {"confidenceWindow": "1s", "minAdvance": "200ms", "maxPartitions": "2"}
    with writing(scylla, table):
        for _ in range(KILLS):
            follow_and_kill(tmp_path, {**options, **brisk}, moments)
    with start(tmp_path, {**options, **brisk}, finish=True) as finished:
        assert finished.communicate(timeout=120)[0]
    assert finished.returncode == 0

    rows = spark.read.parquet(str(tmp_path / "rows")).select(
        "cdc$stream_id", "cdc$time", "cdc$batch_seq_no"
    )
    delivered = Counter(
        (bytes(stream), uuid.UUID(time), number) for stream, time, number in rows.collect()
    )
    log = scylla.session.execute(
        f'SELECT "cdc$stream_id", "cdc$time", "cdc$batch_seq_no" FROM {table}_scylla_cdc_log'
    )
    assert delivered == Counter(tuple(row) for row in log)
    assert len(delivered) > 1_000


@contextmanager
def writing(scylla: Scylla, table: str) -> Iterator[None]:
    """Rows are inserted, changed and deleted all the while."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.wait(0.02):
            number += 1
            key = f"pk = {number % 37} AND ck = {number % 11}"
            scylla.session.execute(
                f"DELETE FROM {table} WHERE {key}"
                if number % 7 == 0
                else f"UPDATE {table} SET m = m + {{{number}: 'x'}} WHERE {key}"
            )

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def follow_and_kill(folder: Path, options: dict[str, str], moments: random.Random) -> None:
    """Start the query, let it do some micro-batches, and kill it somewhere in the next one."""
    with start(folder, options) as process:
        assert process.stdout is not None
        for _ in range(moments.randint(1, 4)):  # that it started, then its micro-batches
            assert process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0, LONGEST))
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def start(folder: Path, options: dict[str, str], *, finish: bool = False) -> subprocess.Popen[str]:
    """The query, in a process group of its own, so that Spark's JVM dies with it."""
    return subprocess.Popen(
        [sys.executable, SCRIPT, folder, "finish" if finish else "follow", json.dumps(options)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
