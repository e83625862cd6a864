"""Runs a page's Kafka query in a separate Spark, and prints the topic as JSON.

Arguments: FOLDER JARS. The code comes from stdin. The query is stopped when it has written all
existing changes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark_scylla_cdc.local_session import local_session


def main(folder: Path, jars: str, servers: str, topic: str) -> None:
    """Run the query, and print the messages of the topic by partition and offset."""
    spark = local_session("kafka", folder / "spark.log", **{"spark.jars": jars})
    defined: dict[str, Any] = {}
    exec(sys.stdin.read(), defined)
    defined["query"].processAllAvailable()
    defined["query"].stop()
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
    found = source.option("subscribe", topic).option("includeHeaders", "true").load()
    rows = found.sort("partition", "offset").selectExpr(
        "CAST(key AS STRING)",
        "CAST(value AS STRING)",
        "CAST(headers[0].value AS STRING) AS sequence",
    )
    print(json.dumps([row.asDict() for row in rows.collect()]))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
