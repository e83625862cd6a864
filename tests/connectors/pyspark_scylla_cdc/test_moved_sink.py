"""The runbook's commands move the folder of a file sink, and all of its rows remain readable."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = Path(__file__).parents[3] / "docs/operate/runbook.md"
MICRO_BATCHES = 12
"""More micro-batches than Spark compacts into one file of metadata (10)."""


def commands(old: Path, new: Path) -> str:
    """Return the page's commands, for these folders."""
    shell = re.compile(r"^```sh\n([^`]*_spark_metadata.*?)^```$", re.MULTILINE | re.DOTALL)
    [block] = shell.findall(PAGE.read_text())
    return str(block).replace("/data/old/orders", str(old)).replace("/data/new/orders", str(new))


def test_a_moved_sink_keeps_its_rows(
    spark: SparkSession,
    execute: Callable[..., None],
    load: Callable[..., DataFrame],
    tmp_path: Path,
) -> None:
    """The query continues in the new folder, and the rows from before the move are found."""
    execute("CREATE TABLE {t} (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")

    def write_and_run(folder: Path, *keys: int) -> None:
        execute(*(f"INSERT INTO {{t}} (pk) VALUES ({key})" for key in keys))
        frame = load(stream=True, confidenceWindow="0s")
        writer = frame.writeStream.format("parquet").option("path", str(folder / "orders"))
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    old, new = tmp_path / "old", tmp_path / "new"
    for key in range(MICRO_BATCHES):
        write_and_run(old, key)
    shutil.move(old, new)
    subprocess.run(["sh", "-ec", commands(old / "orders", new / "orders")], check=True)
    assert keys(spark, new) == [*range(MICRO_BATCHES)]
    write_and_run(new, *range(MICRO_BATCHES, 2 * MICRO_BATCHES))
    assert keys(spark, new) == [*range(2 * MICRO_BATCHES)]


def keys(spark: SparkSession, folder: Path) -> list[int]:
    """Return the keys of the rows in the sink's folder."""
    return sorted(row["pk"] for row in spark.read.parquet(str(folder / "orders")).collect())
