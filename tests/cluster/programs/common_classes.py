"""An application that loads the classes that most applications use.

The argument is SETTINGS_JSON. The program needs no package besides pyspark.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def main(settings: dict[str, Any]) -> None:
    """Load the classes in a new session."""
    load_classes(SparkSession.builder.config(map=settings).getOrCreate())


def load_classes(spark: SparkSession) -> None:
    """Run a batch query and a streaming query, and wait until the session's JVM has ended."""
    with tempfile.TemporaryDirectory() as folder:
        rows = f"{folder}/rows"
        spark.range(100).selectExpr("id", "id % 3 AS k").write.parquet(rows)
        table = spark.read.parquet(rows)
        table.groupBy("k").count().orderBy("k").collect()
        spark.sparkContext.parallelize(range(4)).map(str).collect()
        stream = spark.readStream.schema(table.schema).parquet(rows).writeStream
        stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(
            availableNow=True
        ).foreachBatch(keep).start().awaitTermination()
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # ends the JVM, as the end of this process would
    gateway.proc.wait()


def keep(batch: DataFrame, _number: int) -> None:
    """Drop a micro-batch."""
    batch.write.format("noop").mode("append").save()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
