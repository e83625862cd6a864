"""What `Mirror.status` and the listener tell of a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from pyspark_scylla_cdc import Mirror, ScyllaCdcListener
from pyspark_scylla_cdc.mirroring.status import CopyStatuses, status_of
from pyspark_scylla_cdc.monitoring.status import CopyFiles
from pyspark_scylla_cdc.tables import maintenance
from tests.connectors.pyspark_scylla_cdc.support.copied_rows import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Start = Callable[..., Mirror]


@pytest.fixture
def metrics(spark: SparkSession) -> Iterator[CollectorRegistry]:
    """The metrics of a listener."""
    registry = CollectorRegistry()
    listener = ScyllaCdcListener(registry)
    spark.streams.addListener(listener)
    yield registry
    spark.streams.removeListener(listener)


@pytest.mark.parametrize("place", ["deltalake"], indirect=True)
def test_the_state_of_a_copy(
    execute: Execute,
    start: Start,
    place: dict[str, str],
    metrics: CollectorRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has the copy's rows and files, and how far behind its table it is."""
    monkeypatch.setattr(maintenance, "EVERY", 1)
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}",
        *(f"INSERT INTO {{t}} (pk, v) VALUES ({pk}, 1)" for pk in range(9)),
    )
    copy = start(trigger={"processingTime": "1 hour"}, **place, name="orders")
    try:
        shown = "scylla_cdc_spark_copy_rows{keyspace="
        wait_until(lambda: shown in generate_latest(metrics).decode())
    finally:
        copy.stop()
    [found] = copy.status()
    assert (found.target, found.files.rows, found.files.due) == (place["target"], 9, 0)
    assert found.files.files == 1
    assert found.files.size > 0
    assert found.position is not None
    assert found.committed is not None
    assert found.position < found.committed <= found.as_of
    head, line = str(copy.status()).splitlines()
    assert head.split() == "copy rows MB files to compact last commit lag".split()
    assert line.startswith(place["target"])
    assert f"<td>{place['target']}</td><td>9</td>" in copy.status()._repr_html_()


def test_a_copy_without_a_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    """It has neither a position nor rows."""
    found = status_of(spark, str(tmp_path), "lake.orders", CopyFiles(0, 0, 0, 0))
    assert (found.position, found.committed, found.lag_seconds) == (None, None, None)
    assert "none yet" in str(CopyStatuses([found]))
