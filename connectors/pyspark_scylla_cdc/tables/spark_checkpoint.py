"""What Spark notes in the checkpoint of a query, read by Spark itself.

Spark can read these files wherever they are, in a Spark Connect session too, where there is no
other way to them.
"""

from __future__ import annotations

import json
import zlib
from pathlib import PurePosixPath

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from pyspark_scylla_cdc.tables.sink import MicroBatch


def planned_batch(spark: SparkSession, checkpoint: str, number: int) -> MicroBatch:
    """Return the micro-batch with this number, which Spark has planned.

    The plan contains the time of planning, so a micro-batch that is planned anew gets another
    digest.
    """
    metadata, plan = _contents(spark, checkpoint, "metadata", _plan(number))
    return MicroBatch(json.loads(metadata)["id"], number, zlib.crc32(plan))


def planned(spark: SparkSession, checkpoint: str, number: int) -> bytes:
    """Return Spark's plan of the micro-batch with this number.

    Spark writes the plan to a file before it runs the micro-batch, and reads the file to repeat the
    micro-batch. Its last line is the offset at the end of the micro-batch.
    """
    [plan] = _contents(spark, checkpoint, _plan(number))
    return plan


def last_committed(spark: SparkSession, checkpoint: str) -> int | None:
    """Return the number of the last micro-batch that Spark has committed, or None."""
    try:
        commits = _files(spark, checkpoint, "commits").select("path").collect()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    names = [PurePosixPath(path).name for (path,) in commits]
    return max((int(name) for name in names if name.isdigit()), default=None)


def _plan(number: int) -> str:
    return f"offsets/{number}"


def _contents(spark: SparkSession, checkpoint: str, *names: str) -> list[bytes]:
    """Return the contents of the files with these names, in this order."""
    read = _files(spark, checkpoint, *names).select("path", "content").collect()
    found = {PurePosixPath(path).name: bytes(content) for path, content in read}
    return [found[PurePosixPath(name).name] for name in names]


def _files(spark: SparkSession, checkpoint: str, *names: str) -> DataFrame:
    """Return the files with these names, or in the folders with these names."""
    reader = spark.read.format("binaryFile").option("__globPaths__", "false")
    return reader.load([f"{checkpoint.rstrip('/')}/{name}" for name in names])
