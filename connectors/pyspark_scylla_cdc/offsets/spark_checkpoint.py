"""What Spark notes in the checkpoint of a query, read by Spark itself.

Spark can read these files wherever they are, in a Spark Connect session too, where there is no
other way to them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePosixPath

from attrs import frozen
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from cdc_reader._time import as_datetime
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.offsets.offset import Offset


@frozen
class Plan:
    """A micro-batch as Spark planned it: the id of its query, its number, and Spark's file.

    Spark writes the file before it runs the micro-batch, and reads it to repeat the micro-batch.
    It contains the time of planning, so a micro-batch that is planned anew has another file.
    """

    query: str
    number: int
    content: bytes

    @property
    def ends(self) -> Sequence[Offset]:
        """Where each source ``scylla_cdc`` is after the micro-batch."""
        version, _, *lines = self.content.decode().splitlines()
        # From version 2 of the file on, each line begins with the name of its source.
        texts = lines if version == "v1" else [line.partition(":")[2] for line in lines]
        return [end for end in map(_offset, texts) if end is not None]


def planned(spark: SparkSession, checkpoint: str, number: int) -> Plan:
    """Return the micro-batch with this number, which Spark has planned."""
    return planned_last(spark, checkpoint, number, 1)[0]


def planned_last(spark: SparkSession, checkpoint: str, number: int, count: int) -> list[Plan]:
    """Return the last `count` micro-batches that end with this number, or all if there are fewer.

    The last one comes first.
    """
    numbers = range(number, max(-1, number - count), -1)
    names = (f"offsets/{each}" for each in numbers)
    metadata, *contents = _contents(spark, checkpoint, "metadata", *names)
    query = json.loads(metadata)["id"]
    return [Plan(query, each, content) for each, content in zip(numbers, contents, strict=True)]


def last_committed(spark: SparkSession, checkpoint: str) -> int | None:
    """Return the number of the last micro-batch that Spark has committed, or None."""
    last = last_commit(spark, checkpoint)
    return None if last is None else last[0]


def last_commit(spark: SparkSession, checkpoint: str) -> tuple[int, datetime] | None:
    """Return the number of the last micro-batch that Spark has committed, and when, or None."""
    try:
        files = _files(spark, checkpoint, "commits")
        commits = files.select("path", sf.unix_micros("modificationTime")).collect()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    numbers = [(PurePosixPath(path).name, as_datetime(micros)) for path, micros in commits]
    return max(((int(name), at) for name, at in numbers if name.isdigit()), default=None)


def _offset(text: str) -> Offset | None:
    """Parse an offset; return None if it is from another data source."""
    try:
        return Offset.from_json(json.loads(text))
    except (ConfigurationError, ValueError):
        return None


def _contents(spark: SparkSession, checkpoint: str, *names: str) -> list[bytes]:
    """Return the contents of the files with these names, in this order."""
    read = _files(spark, checkpoint, *names).select("path", "content").collect()
    found = {PurePosixPath(path).name: bytes(content) for path, content in read}
    return [found[PurePosixPath(name).name] for name in names]


def _files(spark: SparkSession, checkpoint: str, *names: str) -> DataFrame:
    """Return the files with these names, or in the folders with these names."""
    reader = spark.read.format("binaryFile").option("__globPaths__", "false")
    return reader.load([f"{checkpoint.rstrip('/')}/{name}" for name in names])
