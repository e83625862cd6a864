"""Archives the classes that Spark loads, so that the JVMs of the tests start in half the time.

``python -m tests.spark_classes`` runs a batch and a streaming query in a JVM that writes the
archive when it ends (Java calls this class-data sharing). A JVM with another class path ignores the
archive.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.quick_spark import START_FAST

_OPTIONS = f"{START_FAST} -Xlog:disable -Xlog:all=error:stderr"
"""Without the last two options, Java prints a warning to stdout if it ignores an archive."""

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
"""The archive for the Spark of this environment."""


def use() -> None:
    """Let all sessions that this process and its children start use the archive, if it exists."""
    if ARCHIVE.exists():
        os.environ["PYSPARK_SUBMIT_ARGS"] = (
            f"--driver-java-options '{reading(ARCHIVE)}' pyspark-shell"
        )


def reading(archive: Path) -> str:
    """Return the options of a JVM that uses the archive."""
    return f"{_OPTIONS} -XX:SharedArchiveFile={archive}"


def writing(archive: Path) -> str:
    """Return the options of a JVM that writes the archive when it ends."""
    return f"{_OPTIONS} -XX:ArchiveClassesAtExit={archive}"


def main() -> None:
    """Run the queries, and write the archive."""
    from pyspark_scylla_cdc.local_session import local_session

    with tempfile.TemporaryDirectory() as folder:
        options = {"spark.driver.extraJavaOptions": writing(ARCHIVE)}
        spark = local_session("classes", Path(folder) / "spark.log", **options)
        rows = f"{folder}/rows"
        spark.range(100).selectExpr(
            "id", "id % 3 AS k", "named_struct('t', 'x') AS s"
        ).write.parquet(rows)
        table = spark.read.parquet(rows)
        table.groupBy("k").count().orderBy("k").toArrow()
        table.join(table.groupBy("k").count(), "k").collect()
        stream = spark.readStream.schema(table.schema).parquet(rows).writeStream
        stream = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(
            availableNow=True
        )
        stream.foreachBatch(lambda batch, _number: batch.write.format("noop").mode("append").save())
        stream.start().awaitTermination()
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # ends the JVM, as the end of this process would
        gateway.proc.wait()


if __name__ == "__main__":
    main()
