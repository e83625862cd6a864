"""Finds the Python interpreters of a Spark application's executors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from attrs import frozen
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkException

from pyspark_scylla_cdc.installation import probe
from pyspark_scylla_cdc.installation.pythons import TIMEOUT, Command, Python, Unusable
from pyspark_scylla_cdc.installation.reasons import lost_task, worker_version

ROUNDS = 5
"""The maximum number of rounds of tasks that run until every executor has run a task."""
_TASK_SECONDS = 0.3
"""The duration of a task, long enough that tasks spread over all executors."""
_AGAIN_SECONDS = 1.0
"""The interval at which jobs are cancelled after the deadline; one may start after the first."""


@frozen
class Late:
    """Tasks did not end within `seconds`, and `running` of them had begun.

    `driver` is the address, as HOST:PORT, at which executors must reach the driver.
    """

    seconds: float
    running: int
    driver: str


@frozen
class Executors:
    """The executors' Pythons that were examined, and the number of executors.

    If a task failed, the last of `pythons` is an `Unusable`, and others were not examined. If tasks
    did not end in time, `late` says how many ran.
    """

    pythons: Sequence[Python | Unusable] = ()
    count: int = 0
    late: Late | None = None

    @property
    def unexamined(self) -> int:
        """The number of executors on which no task ran, although no task failed."""
        return max(0, self.count - len(self.pythons))


def executors(
    context: SparkContext, command: Command, options: dict[str, str], timeout: float = TIMEOUT
) -> Executors:
    """Return the executors' Pythons; give up after `timeout` seconds.

    Tests the Python that a data source uses: `command`, without the files of ``--py-files``.
    """
    found: dict[tuple[str, str], Python] = {}
    deadline = _Deadline(context, timeout)
    try:
        with _python_of_data_sources(context, command), deadline.cancels_jobs():
            for _ in range(ROUNDS):
                for facts in _round(context, options):
                    python = Python(**facts)
                    found[python.host, python.folder] = python
                if len(found) >= _count(context):
                    break
    except (Py4JJavaError, PySparkException) as error:
        if deadline.late:
            return Executors(list(found.values()), _count(context), deadline.late)
        failed = Unusable(*lost_task(error), worker_version(error))
        return Executors([*found.values(), failed], _count(context))
    return Executors([found[place] for place in sorted(found)], _count(context))


@contextmanager
def _python_of_data_sources(context: SparkContext, command: Command) -> Iterator[None]:
    """Let tasks run in the Python of data sources, which may lack this package."""
    kept = context.pythonExec, context._python_includes  # noqa: SLF001 - PySpark passes both on
    context.pythonExec, context._python_includes = command.path, []  # noqa: SLF001
    cloudpickle.register_pickle_by_value(probe)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(probe)
        context.pythonExec, context._python_includes = kept  # noqa: SLF001


def _round(context: SparkContext, options: dict[str, str]) -> list[dict[str, str]]:
    """Run two tasks per core, and return the facts that they found."""
    facts, seconds = probe.facts, _TASK_SECONDS
    tasks = 2 * context.defaultParallelism

    def stay(_: object) -> list[dict[str, str]]:
        time.sleep(seconds)
        return [facts(options)]

    return context.parallelize(range(tasks), tasks).mapPartitions(stay).collect()


class _Deadline:
    """Cancels jobs that do not end in time; `late` then says what had happened by then."""

    def __init__(self, context: SparkContext, seconds: float) -> None:
        self.late: Late | None = None
        self._context, self._seconds = context, seconds
        self._tag = f"scylla-cdc-{uuid4()}"
        self._ended = threading.Event()

    @contextmanager
    def cancels_jobs(self) -> Iterator[None]:
        """Cancel the jobs that this thread starts in the context."""
        self._context.addJobTag(self._tag)
        watch = threading.Thread(target=self._watch, daemon=True)
        watch.start()
        try:
            yield
        finally:
            self._ended.set()
            watch.join()
            self._context.removeJobTag(self._tag)

    def _watch(self) -> None:
        pause = self._seconds
        while not self._ended.wait(pause):
            if self.late is None:
                self.late = Late(self._seconds, _running(self._context), _address(self._context))
            self._context.cancelJobsWithTag(self._tag)
            pause = _AGAIN_SECONDS


def _address(context: SparkContext) -> str:
    conf = context.getConf()
    return f"{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}"


def _running(context: SparkContext) -> int:
    """Return the number of tasks that run on executors."""
    return sum(known.numRunningTasks() for known in _known(context))


def _count(context: SparkContext) -> int:
    """Return the number of executors. A driver that runs tasks itself counts as an executor."""
    return max(1, len(_known(context)) - 1)


def _known(context: SparkContext) -> list[Any]:
    """Return what Spark knows of each executor, and of the driver."""
    return list(context._jsc.sc().statusTracker().getExecutorInfos())  # noqa: SLF001 - not in PySpark
