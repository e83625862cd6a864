"""Iceberg and Delta Lake in the tests' Spark session, if they support the version of Spark."""

from __future__ import annotations

from pathlib import Path

import pyspark

from tests import maven

POM = Path(__file__).with_suffix(".xml")
CATALOG = "lake"
_VERSIONS = ("4.0", "4.1")
_EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


def settings(warehouse: Path) -> dict[str, str]:
    """Return the settings of a session with Delta Lake and Iceberg, or {} if unavailable."""
    version = pyspark.__version__.rpartition(".")[0]
    if version not in _VERSIONS:
        return {}
    try:
        jars = maven.jars(POM, f"spark-{version}")
    except maven.Unavailable:
        return {}
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": ",".join(_EXTENSIONS),
        # A table with a few files does not need 50 tasks to list them.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{CATALOG}.warehouse": str(warehouse),
    }
