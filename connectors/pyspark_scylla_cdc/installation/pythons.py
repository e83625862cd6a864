"""Examines the Python interpreters that Spark starts, on the driver and on executors.

For a Python data source, Spark starts the same command on the driver, where it plans, and on every
executor. The command is PYSPARK_DRIVER_PYTHON, or else PYSPARK_PYTHON, or else ``python3``, with
the values that these variables had when the driver's JVM started.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import time
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any

from attrs import frozen
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.serializers import CPickleSerializer

from pyspark_scylla_cdc.installation import probe

TIMEOUT = 120.0
"""The default time, in seconds, in which a Python on the driver or on executors must answer."""
_ROUNDS, _TASK_SECONDS = 5, 0.3
"""The most rounds of tasks, until each executor has run one; and how long each stays there."""
_WORKER = "Error from python worker:\n"
"""Spark's words before the output of a Python that does not run."""
_WHERE = re.compile(r"\(TID \d+\) \(([^)]+)\): ")
_TRACEBACK = re.compile(r"^( *)(?:\S.*)?Traceback \(most .*\n(?:\1 .*\n)+\1(\S.*)", re.MULTILINE)
_JAVA = re.compile(r"^(An error occurred .*|(: )?([a-z]\w*\.)+[\w$]+(: |$)|\tat .*)")
"""The names of Java classes, the frames of its stack, and the first line of py4j's messages."""

Facts = dict[str, str]
"""What `probe.facts` returns; of a Python that does not run, only its `host` and an `error`."""


@frozen
class Command:
    """The command that Spark starts for data sources.

    `overridden` is a PYSPARK_PYTHON that PYSPARK_DRIVER_PYTHON overrides. `modules` is the
    PYTHONPATH that Spark gives the command.
    """

    path: str
    overridden: str = ""
    modules: str = ""

    @classmethod
    def of(cls, context: SparkContext) -> Command:
        """Return the command of an application."""
        jvm: Any = context._jvm  # noqa: SLF001 - PySpark has no other way to the JVM's variables
        of_driver, of_all = map(
            jvm.java.lang.System.getenv, ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
        )
        # Spark takes an empty variable as set, and cannot run the command.
        path = next(it for it in (of_driver, of_all, "python3") if it is not None)
        of_spark = jvm.org.apache.spark.api.python.PythonUtils.sparkPythonPath()
        modules = os.pathsep.join(filter(None, [of_spark, os.environ.get("PYTHONPATH")]))
        return cls(path, of_all if of_all and of_all != path else "", modules)


def planner(command: Command, options: dict[str, str], timeout: float = TIMEOUT) -> Facts:
    """Return the Python in which Spark plans queries, on the driver."""
    with TemporaryFile() as output:  # a program that a script started would keep a pipe open
        try:
            ran = subprocess.run(  # noqa: S603 - the command that Spark starts as well
                [command.path, "-c", inspect.getsource(probe), json.dumps(options)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=timeout,
                env={**os.environ, "PYTHONPATH": command.modules},
            )
        except OSError as error:
            return {"host": "the driver", "error": error.strerror or str(error)}
        except subprocess.TimeoutExpired:
            return {"host": "the driver", "error": f"no answer within {timeout:g} s"}
        output.seek(0)
        printed = output.read().decode(errors="replace")
    for line in reversed(printed.splitlines()):  # a wrapper script may have printed other lines
        with suppress(ValueError, TypeError):
            return {**json.loads(line)}
    why = reason(f"{_WORKER}{printed}") if printed.strip() else "no output"
    return {"host": "the driver", "error": f"exit status {ran.returncode}: {why}"}


def executors(
    context: SparkContext, command: Command, options: dict[str, str], timeout: float
) -> tuple[list[Facts], str]:
    """Return the executors' Pythons that tasks found, and which executors were not examined.

    The tasks run in the Python of data sources, without the files of ``--py-files``. If a task
    fails, its Python is the last one.
    """
    found, deadline = dict[tuple[str, str], Facts](), time.monotonic() + timeout
    kept = context.pythonExec, context._python_includes  # noqa: SLF001 - PySpark passes both on
    context.pythonExec, context._python_includes = command.path, []  # noqa: SLF001
    try:
        for _ in range(_ROUNDS):
            examined = _round(context, options, deadline - time.monotonic())
            found |= {(each["host"], each["folder"]): each for each in examined}
            if not examined or len(found) >= _count(context):
                break
    except (Py4JJavaError, PySparkException) as error:
        told = str(error).partition("\nCaused by: ")[2] or str(error)
        where = _WHERE.search(told)
        failed = {"host": where[1] if where else "an executor", "error": reason(told)}
        return [*found.values(), failed], ""
    finally:
        context.pythonExec, context._python_includes = kept  # noqa: SLF001
    pythons, count = [found[place] for place in sorted(found)], _count(context)
    if len(pythons) >= count:
        return pythons, ""
    return pythons, f"{len(pythons)} of {count} executors were examined within {timeout:g} s"


def _round(context: SparkContext, options: dict[str, str], seconds: float) -> list[Facts]:
    """Return the Pythons of a job's tasks; empty, once the job is cancelled, if it is late."""
    facts, stay, tasks = probe.facts, _TASK_SECONDS, 2 * context.defaultParallelism

    def examine(_: object) -> list[Facts]:
        time.sleep(stay)  # long enough that tasks spread over all executors
        return [facts(options)]

    cloudpickle.register_pickle_by_value(probe)
    examined = context.parallelize(range(tasks), tasks).mapPartitions(examine)
    jvm: Any = context._jvm  # noqa: SLF001 - PySpark itself cannot limit the time of a job
    job = examined._jrdd.collectAsync()  # noqa: SLF001
    try:
        batches = job.get(int(seconds * 1000), jvm.java.util.concurrent.TimeUnit.MILLISECONDS)
    except (Py4JJavaError, PySparkException):
        if job.isDone():
            raise
        job.cancel(True)
        return []
    return [python for batch in batches for python in CPickleSerializer().loads(batch)]


def _count(context: SparkContext) -> int:
    """Return the number of executors. A driver that runs tasks itself counts as one."""
    known = context._jsc.sc().statusTracker().getExecutorInfos()  # noqa: SLF001 - not in PySpark
    return max(1, len(list(known)) - 1)


def reason(told: str) -> str:
    """Return the line of a program's output, or of an error in Spark, that states the reason.

    It is the message of the last Python traceback, the last line of a worker's output, or the first
    line of a Java error.
    """
    told = _WHERE.split(told)[-1]
    lines = told.splitlines()
    if tracebacks := _TRACEBACK.findall(told):
        lines = [tracebacks[-1][1]]
    elif _WORKER in told:
        lines = told.rpartition(_WORKER)[2].partition("\nPYTHONPATH was:")[0].splitlines()[::-1]
    stated = (_JAVA.sub("", line).strip() for line in lines)
    return next(filter(None, stated), told.strip())
