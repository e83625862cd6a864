"""Iceberg and Delta Lake in the tests' Spark session, if they support the version of Spark."""

from __future__ import annotations

from pathlib import Path

import pyspark

from tests import maven

POM = Path(__file__).with_suffix(".xml")
CATALOG = "lake"
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    # A table with a few files does not need 50 tasks to list them.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_ICEBERG = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_HAS_ICEBERG = {"4.0": True, "4.1": True, "4.2": False}
"""The versions of Spark that Delta Lake supports, and whether Iceberg supports them too."""


def settings(warehouse: Path) -> dict[str, str]:
    """Return a session's settings for Delta Lake and Iceberg, as far as they are available."""
    version = pyspark.__version__.rpartition(".")[0]
    if version not in _HAS_ICEBERG:
        return {}
    try:
        jars = maven.jars(POM, f"spark-{version}")
    except maven.Unavailable:
        return {}
    given = {**_DELTA, "spark.jars": ",".join(map(str, jars))}
    if not _HAS_ICEBERG[version]:
        return given
    return {
        **given,
        "spark.sql.extensions": f"{given['spark.sql.extensions']},{_ICEBERG}",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{CATALOG}.warehouse": str(warehouse),
    }
