"""Compares the Spark source on two executors and on one, each pinned to a processor core."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path

from attrs import frozen
from pyspark.sql import DataFrame, SparkSession

from cdc_reader._time import SystemClock, format_timestamp
from cdc_reader.decoding import decode
from pyspark_scylla_cdc.local_session import quiet_session
from tests.benchmarks.apart import apart
from tests.benchmarks.figure import Figure
from tests.benchmarks.logs import FLAT, fill, log_of
from tests.benchmarks.pages import flat_page
from tests.benchmarks.serving import KEYSPACE, Served, serving
from tests.cluster.machine import Isolation, Machine
from tests.cluster.standalone import Standalone, standalone

PAGE_ROWS = 8_000
PAGES = 300
"""The number of pages, so large that planning, in one process, takes comparatively little time."""
PARTITIONS = 8
"""Number of tasks. Each executor runs its tasks one after another."""
DECODED_PAGES = 3_000
"""The number of pages that a process without Spark decodes."""
_TICKS = os.sysconf("SC_CLK_TCK")


@frozen
class Read:
    """One read: its rows, its duration, and the CPU seconds of all processes but the executors."""

    rows: int
    seconds: float
    others: float

    @property
    def rate(self) -> float:
        """The number of rows read per second."""
        return self.rows / self.seconds


def scale_figures(times: int) -> Iterator[Figure]:
    """Measure reads of the same pages by one executor and by two, alternately.

    `decode_scale` compares one and two processes that only decode, without Spark. It shows how well
    the machine itself scales.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with (
        tempfile.TemporaryDirectory() as name,
        serving(vnodes=PARTITIONS) as served,
        standalone(Path(name), Isolation.NONE, java_options="") as cluster,
    ):
        fill(served, PAGE_ROWS)
        # With a fixed end, all reads have the same plan, regardless of the log's age.
        end = format_timestamp(SystemClock().now())
        served.replay(log_of(FLAT), PAGES, PAGE_ROWS)
        for core, worker in enumerate(cluster.workers):
            _pin(worker, core % (os.cpu_count() or 1))
        reads: dict[int, list[Read]] = {1: [], 2: []}
        decoded: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(times):
            for count in (1, 2):
                reads[count].append(_read(cluster, served, count, end))
                decoded[count].append(_decode(count))
    assert len({read.rows for found in reads.values() for read in found}) == 1
    one, two = (statistics.median(decoded[count]) for count in (1, 2))
    yield Figure("decode_scale", two, "rows/s", one, "one process")
    one, two = (statistics.median(read.rate for read in reads[count]) for count in (1, 2))
    share = statistics.median(read.others / read.seconds for read in reads[2])
    cores = os.cpu_count() or 1
    yield Figure(
        "spark_scale",
        two,
        "rows/s",
        one,
        "one executor",
        at_least=1.7,
        note=f"server and driver take {share:.2f} of {cores} cores meanwhile",
    )


def _decode(processes: int) -> float:
    """Return the total rows per second that processes on separate cores decode, without Spark."""
    together = multiprocessing.get_context("spawn").Barrier(processes)
    with ThreadPoolExecutor(processes) as threads:
        rates = [threads.submit(apart, _decode_on, core, together) for core in range(processes)]
        return sum(rate.result() for rate in rates)


def _decode_on(core: int, together: Barrier) -> float:
    os.sched_setaffinity(0, {core % (os.cpu_count() or 1)})
    page = flat_page(PAGE_ROWS)
    together.wait(60)
    start = time.perf_counter()
    for _ in range(DECODED_PAGES):
        decode(page.received())
    return DECODED_PAGES * PAGE_ROWS / (time.perf_counter() - start)


def _pin(worker: Machine, core: int) -> None:
    """Pin the worker, and thereby its executors, to one core."""
    for pid in worker.pids():
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), {core})


def _read(cluster: Standalone, served: Served, executors: int, end: str) -> Read:
    """Measure a read up to `end` with this many executors.

    Two earlier reads warm up the JVMs. Otherwise, the JVM of each executor would spend
    seconds of the measurement on compiling Spark's code.
    """
    settings = {
        **cluster.conf,
        "spark.cores.max": str(executors),
        "spark.scheduler.minRegisteredResourcesRatio": "1",
    }
    builder = SparkSession.builder.appName("spark_scale").master(cluster.master)
    spark = quiet_session(builder, cluster.folder / "spark.log", settings)
    try:
        rows = _frame(spark, served, end).count()
        _drain(_frame(spark, served, end))
        before, start = _cpu_of_others(), time.perf_counter()
        _drain(_frame(spark, served, end))
        return Read(rows, time.perf_counter() - start, _cpu_of_others() - before)
    finally:
        spark.stop()


def _frame(spark: SparkSession, served: Served, end: str) -> DataFrame:
    options = {
        "hosts": f"127.0.0.1:{served.port}",
        "consistencyLevel": "ONE",
        "maxPartitions": str(PARTITIONS),
        "fetchSize": str(PAGE_ROWS),
        "endingTimestamp": end,
    }
    return spark.read.format("scylla_cdc").options(**options).load(f"{KEYSPACE}.{FLAT}")


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _cpu_of_others() -> float:
    """Return the CPU seconds of this process, the driver's JVM and the server."""
    servers = {str(child.pid) for child in multiprocessing.active_children()}
    found = sum(os.times()[:2])
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_driver = b"SparkSubmit" in (folder / "cmdline").read_bytes()
            if folder.name in servers or (is_driver and _parent(folder) == os.getpid()):
                found += sum(map(int, _stat(folder)[11:13])) / _TICKS
    return found


def _parent(folder: Path) -> int:
    return int(_stat(folder)[1])


def _stat(folder: Path) -> list[str]:
    """Return the fields of `/proc/PID/stat` after the process name, which may contain spaces."""
    return (folder / "stat").read_text().rpartition(") ")[2].split()
