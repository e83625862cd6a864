"""A streaming query in a separate process, to be killed or measured.

Arguments: FOLDER OPTIONS_JSON. The query writes a log's rows to Parquet files in FOLDER/rows, and
restarts after a failure. It prints a line of JSON for each micro-batch and each failure.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_scylla_cdc.local_session import local_session

SETTINGS = {
    "spark.master": "local[2, 4]",  # retry a task whose worker was killed
    "spark.driver.memory": "500m",
}


class Narrator(StreamingQueryListener):
    """Prints the number of rows, the end position and the heap in use (MB) of each micro-batch."""

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark._jvm
        assert jvm is not None
        self._runtime = jvm.java.lang.Runtime.getRuntime()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        progress, runtime = event.progress, self._runtime
        position = json.loads(progress.sources[0].endOffset)["position"]
        heap = (runtime.totalMemory() - runtime.freeMemory()) / 1e6
        tell(rows=progress.numInputRows, position=position, heap=heap)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass


def tell(**facts: Any) -> None:
    """Print a line of JSON for the test."""
    print(json.dumps(facts), flush=True)


def follow(spark: SparkSession, folder: Path, options: dict[str, str]) -> None:
    """Follow the log until the query fails, and print the failure."""
    query = spark.readStream.format("scylla_cdc").options(**options).load().writeStream
    query = query.option("checkpointLocation", str(folder / "checkpoint"))
    try:
        query.format("parquet").start(str(folder / "rows")).awaitTermination()
    except StreamingQueryException as error:
        tell(failed=str(error))


def main(folder: Path, options: dict[str, str]) -> None:
    """Follow the log until this process is killed."""
    spark = local_session("following", folder / "spark.log", **SETTINGS)
    spark.streams.addListener(Narrator(spark))
    while True:
        follow(spark, folder, options)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
