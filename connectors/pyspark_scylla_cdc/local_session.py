"""A quiet Spark of one machine, for the demo, examples and tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_scylla_cdc.java import require_java

_SETTINGS = {
    # It lives for a minute or so: optimised code would not earn the time it takes to make.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def local_session(app_name: str, log_file: Path, **settings: str) -> SparkSession:
    """A session on two cores of this machine; all that Spark has to say goes to `log_file`.

    Raises JavaError if there is no Java that Spark can run on.
    """
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName(app_name)
    for name, value in {**_SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    with _stderr_into(log_file):
        return builder.getOrCreate()


@contextmanager
def _stderr_into(log_file: Path) -> Iterator[None]:
    """Processes started meanwhile keep writing their standard error to the file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log_file.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
