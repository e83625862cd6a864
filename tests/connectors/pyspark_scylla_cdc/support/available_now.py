"""Runs of a streaming query with the trigger `availableNow`, in each version of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark_scylla_cdc.spark_versions import TELLS_START

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def read_available(writer: DataStreamWriter) -> list[StreamingQueryProgress]:
    """Read all available rows, and return the progress of each micro-batch.

    Before Spark 4.2, a run has one micro-batch, so runs are repeated until a run has no rows.
    """
    found: list[StreamingQueryProgress] = []
    while True:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        ran = [progress for progress in query.recentProgress if _end(progress) != _end_of(found)]
        found += ran
        if TELLS_START or not ran:
            return found


def _end_of(found: list[StreamingQueryProgress]) -> Any:
    return _end(found[-1]) if found else None


def _end(progress: StreamingQueryProgress) -> Any:
    [source] = progress.sources
    return source.endOffset
