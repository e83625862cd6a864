"""Finds the Python interpreters of a Spark application: of the driver, planner and executors.

For a Python data source, Spark starts the same command on the driver, where it plans, and on every
executor. The command is PYSPARK_DRIVER_PYTHON, or else PYSPARK_PYTHON, or else ``python3``. Spark
uses the values that these variables had when the driver's JVM started.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import time
from typing import Any

from attrs import frozen
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkException

from pyspark_scylla_cdc.installation import probe

ROUNDS = 5
"""The maximum number of rounds of tasks that run until every executor has run a task."""
_TASK_SECONDS = 0.3
"""The duration of a task, long enough that tasks spread over all executors."""

_LOST_TASK = re.compile(r"\(TID \d+\) \((?P<where>[^)]+)\): (?P<why>[^\n]*)")


@frozen
class Command:
    """The command that Spark starts; `overridden` is a PYSPARK_PYTHON that it overrides."""

    path: str
    overridden: str = ""


@frozen
class Python:
    """Facts about a Python, named as in `probe.facts`; an empty string means a missing package."""

    host: str
    folder: str
    python: str
    version: str
    pyspark: str
    pyarrow: str
    pandas: str
    package: str
    kernel: str
    cluster: str

    @property
    def minor_version(self) -> str:
        """The major and minor version, which must be the same for all of Spark's interpreters."""
        return self.version.rpartition(".")[0]


@frozen
class Unusable:
    """A Python that does not run: where it is, and the reason that Spark or the system gave."""

    where: str
    reason: str


def planner_command(context: SparkContext) -> Command:
    """Return the command that Spark starts for Python data sources."""
    jvm: Any = context._jvm  # noqa: SLF001 - PySpark has no other way to the JVM's variables
    of_driver, of_all = map(
        jvm.java.lang.System.getenv, ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
    )
    if of_driver and of_all and of_driver != of_all:
        return Command(of_driver, overridden=of_all)
    return Command(of_driver or of_all or "python3")


def this_python(options: dict[str, str]) -> Python:
    """Return the facts about the running Python."""
    return Python(**probe.facts(options))


def planner(command: Command, options: dict[str, str]) -> Python | Unusable:
    """Return the Python in which Spark plans queries, on the driver."""
    text = inspect.getsource(probe)
    try:
        ran = subprocess.run(  # noqa: S603 - the command that Spark starts as well
            [command.path, "-c", text, json.dumps(options)],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return Unusable("the driver", f"{command.path}: {error.strerror}")
    if ran.returncode:
        return Unusable("the driver", f"{command.path}: {ran.stderr.strip().splitlines()[-1]}")
    return Python(**json.loads(ran.stdout))


def executors(
    context: SparkContext, command: Command, options: dict[str, str]
) -> list[Python | Unusable]:
    """Return each executor's Python; if one fails, return the Pythons so far and an `Unusable`.

    Tests the Python that a data source uses: `command`, without the files of ``--py-files``.
    """
    kept = context.pythonExec, context._python_includes  # noqa: SLF001 - PySpark passes both on
    context.pythonExec, context._python_includes = command.path, []  # noqa: SLF001
    cloudpickle.register_pickle_by_value(probe)
    found: dict[tuple[str, str], Python] = {}
    try:
        for _ in range(ROUNDS):
            for facts in _round(context, options):
                python = Python(**facts)
                found[python.host, python.folder] = python
            if len(found) >= _count(context):
                break
    except (Py4JJavaError, PySparkException) as error:
        return [*found.values(), _unusable(str(error))]
    finally:
        cloudpickle.unregister_pickle_by_value(probe)
        context.pythonExec, context._python_includes = kept  # noqa: SLF001
    return [found[place] for place in sorted(found)]


def _round(context: SparkContext, options: dict[str, str]) -> list[dict[str, str]]:
    """Run two tasks per core, and return the facts that they found."""
    facts, seconds = probe.facts, _TASK_SECONDS
    tasks = 2 * context.defaultParallelism

    def stay(_: object) -> list[dict[str, str]]:
        time.sleep(seconds)
        return [facts(options)]

    return context.parallelize(range(tasks), tasks).mapPartitions(stay).collect()


def _count(context: SparkContext) -> int:
    """Return the number of executors. A driver that runs tasks itself counts as an executor."""
    known = context._jsc.sc().statusTracker().getExecutorInfos()  # noqa: SLF001 - not in PySpark
    return max(1, len(known) - 1)


def _unusable(message: str) -> Unusable:
    lost = _LOST_TASK.search(message)
    if lost is None:
        return Unusable("an executor", message.strip().splitlines()[0])
    return Unusable(lost["where"], lost["why"])
