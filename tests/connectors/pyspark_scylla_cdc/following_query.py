"""A streaming query in a process of its own, for a test to kill: FOLDER FINISH OPTIONS_JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark_scylla_cdc.local_session import local_session


def main(folder: Path, finish: bool, options: dict[str, str]) -> None:
    """Follow the log into Parquet files; to the end of what is there if told to finish."""
    spark = local_session("following", folder / "spark.log", **{"spark.driver.memory": "500m"})
    writer = spark.readStream.format("scylla_cdc").options(**options).load().writeStream
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    if finish:
        writer = writer.trigger(availableNow=True)
    query = writer.format("parquet").start(str(folder / "rows"))
    print("following", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "finish", json.loads(sys.argv[3]))
