"""How many copies a driver has memory for.

Measured with up to 24 copies of small tables in one session of Spark 4.3: each query keeps 10 to 18
MiB of the heap after a garbage collection, and a process of Python, of 110 MiB, that plans its
micro-batches. A heap needs room beside what it keeps, so twice as much is counted; the memory
outside the heap includes the stacks of the query's threads.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc_reader.errors import ConfigurationError

_MIB = 2**20
_HEAP, _OUTSIDE = 32 * _MIB, 128 * _MIB
"""What a copy takes of the driver's heap, and of its machine's memory outside the heap."""
_UNKNOWN = 50
"""How many copies a driver may have whose memory is unknown, as in Spark Connect."""
_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""The memory of a container, or the word max."""


def check_capacity(spark: SparkSession, tables: object, count: int) -> None:
    """Raise ConfigurationError if the driver lacks the memory for `count` copies of `tables`."""
    most = most_copies(spark)
    if count > most:
        remedy = (
            f"found {count} tables, and this driver has memory for about {most}: give it more "
            "(spark.driver.memory), or divide the tables among several applications"
        )
        raise ConfigurationError("tables", tables, remedy)


def most_copies(spark: SparkSession) -> int:
    """Return the estimated number of copies that the driver has memory for."""
    if not hasattr(spark, "_jsparkSession"):
        return _UNKNOWN
    jvm: Any = spark._jvm  # noqa: SLF001 - Spark has no other way to its heap
    heap = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    memory = _machine()
    outside = _UNKNOWN if memory is None else max(0, memory - heap) // _OUTSIDE
    return min(heap // _HEAP, outside)


def _machine() -> int | None:
    """Return the memory of this machine, or of the container, in bytes; None if it is unknown."""
    if not hasattr(os, "sysconf"):  # on Windows
        return None
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _LIMIT.read_text().strip() if _LIMIT.exists() else ""
    return min(memory, int(limit)) if limit.isdigit() else memory
