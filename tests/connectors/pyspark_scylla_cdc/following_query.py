"""A streaming query in a process of its own, for a test to kill: FOLDER FINISH OPTIONS_JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_scylla_cdc.local_session import local_session


class Narrator(StreamingQueryListener):
    """Prints a line when the query starts, and one for each micro-batch."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: ARG002, N802 - Spark's name
        print("started", flush=True)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        print(event.progress.batchId, event.progress.numInputRows, flush=True)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        pass


def main(folder: Path, finish: bool, options: dict[str, str]) -> None:
    """Follow the log into Parquet files; to the end of what is there if told to finish."""
    spark = local_session("following", folder / "spark.log", **{"spark.driver.memory": "500m"})
    spark.streams.addListener(Narrator())
    writer = spark.readStream.format("scylla_cdc").options(**options).load().writeStream
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    if finish:
        writer = writer.trigger(availableNow=True)
    writer.format("parquet").start(str(folder / "rows")).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "finish", json.loads(sys.argv[3]))
