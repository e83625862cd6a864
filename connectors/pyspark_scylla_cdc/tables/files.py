"""Access to files in any location that Spark can use."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def located(spark: SparkSession, name: str) -> tuple[Any, Any]:
    """Return Hadoop's file system for the path `name`, with Spark's settings, and the path."""
    context = spark.sparkContext
    jvm: Any = context._jvm  # noqa: SLF001 - PySpark has no other way
    path = jvm.org.apache.hadoop.fs.Path(name)
    return path.getFileSystem(context._jsc.hadoopConfiguration()), path  # noqa: SLF001 - as above


def plan_of(spark: SparkSession, checkpoint: str, number: int) -> int:
    """Return a digest of Spark's plan of the micro-batch with this number.

    Spark writes the plan to a file before it runs the micro-batch, and reads the file to repeat the
    micro-batch. The file contains the time of planning, so a micro-batch that is planned anew gets
    another digest.
    """
    files, path = located(spark, f"{checkpoint.rstrip('/')}/offsets/{number}")
    stream = files.open(path)
    try:
        return zlib.crc32(stream.readAllBytes())
    finally:
        stream.close()
