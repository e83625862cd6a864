"""Spark's `local-cluster` mode, which starts executors as any cluster does, but on one machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_scylla_cdc.local_session import require_java
from tests.cluster.log import numbered_log
from tests.cluster.reader import PROGRAM, Reader
from tests.cluster.standalone import SPARK
from tests.quick_spark import INTERPRETED, START_FAST

EXECUTORS = 2
SETTINGS = {
    "spark.master": f"local-cluster[{EXECUTORS},1,1024]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": START_FAST,
    **INTERPRETED,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """A directory with links to a Spark installation. Spark's workers put their files there."""
    home = tmp_path / "spark"
    home.mkdir()
    for part in SPARK.iterdir():
        (home / part.name).symlink_to(part)
    return home


@pytest.fixture
def driver(spark_home: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The driver of the application."""
    require_java()
    with (tmp_path / "driver.log").open("w") as errors:
        driver = subprocess.Popen(
            [sys.executable, PROGRAM, json.dumps(SETTINGS)],
            env={**os.environ, "SPARK_HOME": str(spark_home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        with driver:
            yield driver


@pytest.mark.slow
@pytest.mark.spark
def test_batch_and_stream(driver: subprocess.Popen[str], tmp_path: Path) -> None:
    """A batch and a stream read each row once, and both executors take part."""
    with numbered_log("127.0.0.1", 2_000) as log:
        reader = Reader(driver, tmp_path, log)
        assert reader.read("batch") == log.whole
        assert len(reader.read("places")) == EXECUTORS
        assert reader.read("parquet", "rows") == log.whole
        log.fill(100)
        assert reader.read("parquet", "rows") == log.whole
