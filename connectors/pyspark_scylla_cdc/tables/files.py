"""Access to files in any location that Spark can use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def located(spark: SparkSession, name: str) -> tuple[Any, Any]:
    """Return Hadoop's file system for the path `name`, with Spark's settings, and the path."""
    context = spark.sparkContext
    jvm: Any = context._jvm  # noqa: SLF001 - PySpark has no other way
    path = jvm.org.apache.hadoop.fs.Path(name)
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path  # noqa: SLF001 - as above
