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
    from tests.cluster.programs.common_classes import load_classes

    with tempfile.TemporaryDirectory() as folder:
        options = {"spark.driver.extraJavaOptions": writing(ARCHIVE)}
        spark = local_session("classes", Path(folder) / "spark.log", **options)
        table = spark.range(100).selectExpr("id", "id % 3 AS k", "named_struct('t', 'x') AS s")
        table.toArrow()
        table.join(table.groupBy("k").count(), "k").collect()
        load_classes(spark)


if __name__ == "__main__":
    main()
