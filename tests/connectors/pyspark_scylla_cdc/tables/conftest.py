"""Fixtures for copies of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_scylla_cdc import Mirror, mirror
from pyspark_scylla_cdc.mirroring import mirror as mirroring
from pyspark_scylla_cdc.tables.delta import DeltaLakeSink
from tests.connectors.pyspark_scylla_cdc.support.lakehouse import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Start = Callable[..., Mirror]
ADAPTIVE = "spark.sql.adaptive.enabled"


@pytest.fixture
def in_two_tasks(spark: SparkSession) -> Iterator[None]:
    """Turn off adaptive execution, which would fold so few changes in one task."""
    spark.conf.set(ADAPTIVE, "false")
    yield
    spark.conf.unset(ADAPTIVE)


@pytest.fixture(
    params=[
        pytest.param("delta", marks=pytest.mark.nightly),
        pytest.param("iceberg", marks=pytest.mark.nightly),
        "deltalake",
    ]
)
def place(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    keyspace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, str]:
    """The arguments of `mirror` for a copy, in each format that the session can write.

    Delta Lake's library writes ``delta``, and the package deltalake writes ``deltalake``.
    """
    kind, target = request.param, str(tmp_path / "copy")
    if kind == "delta" and "io.delta" not in (spark.conf.get("spark.sql.extensions", None) or ""):
        pytest.skip("Delta Lake is made for Spark 4.0 to 4.2, and its jars come from Maven")
    if kind == "iceberg" and spark.conf.get(f"spark.sql.catalog.{CATALOG}", None) is None:
        pytest.skip("Iceberg is made for Spark 4.0 and 4.1, and its jars come from Maven")
    if kind == "deltalake":
        monkeypatch.setattr(mirroring, "DeltaSparkSink", lambda _spark, path: DeltaLakeSink(path))
        kind = "delta"
    if kind == "iceberg":
        target = f"{CATALOG}.{keyspace}.t"
    return {"format": kind, "target": target, "checkpoint": str(tmp_path / "positions")}


@pytest.fixture
def start(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> Start:
    """Starts a copy that ends when it has read all available rows."""

    def start(source: Mapping[str, str] | None = None, **more: Any) -> Mirror:
        source = {**options, "confidenceWindow": "0s", "maxPartitions": "2", **(source or {})}
        settings = {"target": str(tmp_path / "copy"), "trigger": {"availableNow": True}, **more}
        return mirror(spark, source, **settings)

    return start
