"""The source under Spark Connect, where driver and user program are separate processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
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


def test_batch_stream_and_fold(execute: Execute, options: dict[str, str], tmp_path: Path) -> None:
    """A client without a JVM reads a batch, follows a stream, and folds changes."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int) "
        "WITH cdc = {'enabled': true, 'postimage': true}",
        *[f"INSERT INTO {{t}} (pk, v) VALUES ({number % 5}, {number})" for number in range(20)],
    )
    given = json.dumps(
        {**options, "format": "changes", "includeDelta": "true", "maxPartitions": "2"}
    )
    ran = subprocess.run(
        [sys.executable, "-c", CLIENT, given, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told == [20, 5, 20, {"cql.type": "int", "cql.kind": "partition_key"}]
