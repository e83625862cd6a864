"""The source under Spark Connect, where driver and user program are separate processes."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Execute = Callable[..., None]
CLIENT = """
import json, os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from pyspark_scylla_cdc import fold
options, folder = json.loads(sys.argv[1]), sys.argv[2]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert ".connect." in str(type(spark))
frame = spark.read.format("scylla_cdc").options(**options).load()
stream = spark.readStream.format("scylla_cdc").options(**options, confidenceWindow="0s").load()
writer = stream.writeStream.format("parquet").option("checkpointLocation", folder + "/checkpoint")
writer.trigger(availableNow=True).start(folder + "/rows").awaitTermination()
rows = spark.read.parquet(folder + "/rows").count()
print(json.dumps([frame.count(), fold(frame).count(), rows, frame.schema["pk"].metadata]))
spark.stop()
"""

MIRROR = """
import json, os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc import mirror
options, folder = json.loads(sys.argv[1]), sys.argv[2]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
copy = mirror(spark, options, target=folder + "/copy", trigger={"availableNow": True})
copy.awaitTermination()
for more in ({"format": "iceberg", "checkpoint": folder + "/other"}, {"tables": "shop.*"}):
    try:
        mirror(spark, options, target="lake.copy", **more)
    except ConfigurationError as error:
        print(error)
print(json.dumps(sorted(list(row) for row in copy.read().collect())))
spark.stop()
"""


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Run one test at a time: Spark's local servers all listen at one port."""
    with Path(tempfile.gettempdir(), "scylla-cdc-connect.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_batch_stream_and_fold(execute: Execute, options: dict[str, str], tmp_path: Path) -> None:
    """A client without a JVM reads a batch, follows a stream, and folds changes."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int) "
        "WITH cdc = {'enabled': true, 'postimage': true}",
        *[f"INSERT INTO {{t}} (pk, v) VALUES ({number % 5}, {number})" for number in range(20)],
    )
    given = {**options, "format": "changes", "includeDelta": "true", "maxPartitions": "2"}
    told = json.loads(printed(CLIENT, given, tmp_path)[-1])
    assert told == [20, 5, 20, {"cql.type": "int", "cql.kind": "partition_key"}]


def test_mirror(execute: Execute, options: dict[str, str], tmp_path: Path) -> None:
    """`mirror` keeps a Delta copy, in several runs, and says what it cannot do there."""
    execute(
        "CREATE TABLE {t} (pk int, ck int, v int, s int static, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true}",
        *[f"INSERT INTO {{t}} (pk, ck, v) VALUES ({n % 3}, {n}, {n})" for n in range(6)],
    )
    assert mirrored(options, tmp_path) == [[n % 3, n, None, n] for n in (0, 3, 1, 4, 2, 5)]
    execute(
        "DELETE FROM {t} WHERE pk = 0",
        "UPDATE {t} SET s = 7 WHERE pk = 1",
        "UPDATE {t} SET v = 9 WHERE pk = 2 AND ck = 5",
    )
    kept = [[1, 1, 7, 1], [1, 4, 7, 4], [2, 2, None, 2], [2, 5, None, 9]]
    assert mirrored(options, tmp_path) == kept


def mirrored(options: dict[str, str], folder: Path) -> list[list[int | None]]:
    """Run `mirror` once in a session of its own; return the rows of the copy."""
    refused, pattern, rows = printed(MIRROR, {**options, "confidenceWindow": "0s"}, folder)[-3:]
    assert pattern.startswith("tables is 'shop.*': a Spark Connect session cannot look for tables")
    assert refused.startswith(
        "format is 'iceberg': Spark Connect gives no access to Iceberg: give "
    )
    found: list[list[int | None]] = json.loads(rows)
    return found


def printed(client: str, options: dict[str, str], folder: Path) -> list[str]:
    """Run a client in a process of its own; return the lines that it prints."""
    ran = subprocess.run(
        [sys.executable, "-c", client, json.dumps(options), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    return ran.stdout.splitlines()
