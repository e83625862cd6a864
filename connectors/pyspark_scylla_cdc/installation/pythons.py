"""Examines the Python interpreters that Spark starts, on the driver and on executors.

For a Python data source, Spark starts the same command on the driver, where it plans, and on every
executor. The command is PYSPARK_DRIVER_PYTHON, or else PYSPARK_PYTHON, or else ``python3``. Spark
uses the values that these variables had when the driver's JVM started.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any
from uuid import uuid4

from attrs import define, frozen
from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread, SparkContext, cloudpickle
from pyspark.errors import PySparkException

from pyspark_scylla_cdc.installation import probe

TIMEOUT = 120.0
"""The default time, in seconds, in which a Python on the driver or on executors must answer."""
_ROUNDS, _TASK_SECONDS = 5, 0.3
"""The most rounds of tasks, until each executor has run one; and how long each stays there."""
_IGNORED = ("spark.pyspark.driver.python", "spark.pyspark.python")
"""Settings that choose the Python of applications, but not that of Python data sources."""
_WORKER = "Error from python worker:\n"
"""Spark's words before the output of a Python that does not run."""
_WHERE = re.compile(r"\(TID \d+\) \(([^)]+)\): ")
_JAVA = re.compile(r"^(An error occurred .*|(: )?([a-z]\w*\.)+[\w$]+(: |$)|\tat .*)")
"""The names of Java classes, the frames of its stack, and the first line of py4j's messages."""


@frozen
class Command:
    """The command that Spark starts for data sources.

    `overridden` is a PYSPARK_PYTHON that PYSPARK_DRIVER_PYTHON overrides. `ignored` is a setting or
    variable, as NAME=VALUE, that names another Python. `modules` is the PYTHONPATH that Spark gives
    the command.
    """

    path: str
    overridden: str = ""
    ignored: str = ""
    modules: str = ""

    @property
    def note(self) -> str:
        """A sentence about the setting that Spark ignores; empty if there is none."""
        return self.ignored and (
            f"For data sources, Spark starts {self.path} and ignores {self.ignored}: set "
            "PYSPARK_PYTHON before Spark starts, and not to another value in conf/spark-env.sh"
        )

    @classmethod
    def of(cls, context: SparkContext) -> Command:
        """Return the command of an application."""
        jvm: Any = context._jvm  # noqa: SLF001 - PySpark has no other way to the JVM's variables
        names = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
        of_driver, of_all = map(jvm.java.lang.System.getenv, names)
        path = of_driver or of_all or "python3"
        named = [(name, context.getConf().get(name)) for name in _IGNORED]
        named += [(name, os.environ.get(name)) for name in names]
        ignored = next((f"{name}={own}" for name, own in named if own and own != path), "")
        overridden = of_all if of_driver and of_all and of_all != path else ""
        of_spark = jvm.org.apache.spark.api.python.PythonUtils.sparkPythonPath()
        modules = os.pathsep.join(filter(None, [of_spark, os.environ.get("PYTHONPATH")]))
        return cls(path, overridden, ignored, modules)


@frozen(kw_only=True)
class Python:
    """Facts about a Python, named as in `probe.facts`; an empty string means a missing package.

    `error` is the reason why it does not run, as Spark or the system gave it; nothing else than its
    host is then known.
    """

    host: str
    folder: str = ""
    python: str = ""
    version: str = ""
    pyspark: str = ""
    pyarrow: str = ""
    pandas: str = ""
    package: str = ""
    kernel: str = ""
    cluster: str = ""
    error: str = ""


def planner(command: Command, options: dict[str, str], timeout: float = TIMEOUT) -> Python:
    """Return the Python in which Spark plans queries, on the driver."""
    # Files, not pipes: a program that a wrapper script started would keep pipes open.
    with TemporaryFile() as output, TemporaryFile() as errors:
        try:
            ran = subprocess.run(  # noqa: S603 - the command that Spark starts as well
                [command.path, "-c", inspect.getsource(probe), json.dumps(options)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                check=False,
                timeout=timeout,
                env={**os.environ, "PYTHONPATH": command.modules} if command.modules else None,
            )
        except OSError as error:
            return Python(host="the driver", error=error.strerror or str(error))
        except subprocess.TimeoutExpired:
            return Python(host="the driver", error=f"no answer within {timeout:g} s")
        output.seek(0)
        errors.seek(0)
        printed, complaint = (file.read().decode(errors="replace") for file in (output, errors))
    for line in reversed(printed.splitlines()):  # a wrapper script may have printed other lines
        with suppress(ValueError, TypeError):
            return Python(**json.loads(line))
    told = reason(f"{_WORKER}{complaint}")
    why = told or f"exit status {ran.returncode}, and printed {printed[:80]!r}"
    return Python(host="the driver", error=why)


@define
class Executors:
    """The executors' Pythons that tasks found; if a task failed, the last one does not run."""

    context: SparkContext
    pythons: Sequence[Python] = ()
    late: str = ""
    """What happened by then, if tasks did not end in time."""

    @property
    def count(self) -> int:
        """The number of executors. A driver that runs tasks itself counts as one."""
        return max(1, len(self._known()) - 1)

    def examine(self, command: Command, options: dict[str, str], timeout: float) -> None:
        """Run tasks in the Python of data sources, without the files of ``--py-files``."""
        context, tag = self.context, f"scylla-cdc-{uuid4()}"
        thread = InheritableThread(target=self._run, args=(options, tag), daemon=True)
        kept = context.pythonExec, context._python_includes  # noqa: SLF001 - PySpark passes both on
        context.pythonExec, context._python_includes = command.path, []  # noqa: SLF001
        try:
            thread.start()
            thread.join(timeout)
        finally:
            context.pythonExec, context._python_includes = kept  # noqa: SLF001
        if thread.is_alive():
            running = sum(known.numRunningTasks() for known in self._known())
            self.late = f"after {timeout:g} s, {running} tasks of the application run on executors"
            context.cancelJobsWithTag(tag)

    def _run(self, options: dict[str, str], tag: str) -> None:
        facts, seconds, found = probe.facts, _TASK_SECONDS, dict[tuple[str, str], Python]()
        tasks = 2 * self.context.defaultParallelism

        def stay(_: object) -> list[dict[str, str]]:
            time.sleep(seconds)  # long enough that tasks spread over all executors
            return [facts(options)]

        self.context.addJobTag(tag)
        cloudpickle.register_pickle_by_value(probe)
        try:
            for _ in range(_ROUNDS):
                rows = self.context.parallelize(range(tasks), tasks).mapPartitions(stay).collect()
                found |= {(row["host"], row["folder"]): Python(**row) for row in rows}
                self.pythons = [found[place] for place in sorted(found)]
                if self.late or len(found) >= self.count:
                    break
        except (Py4JJavaError, PySparkException) as error:
            if self.late:  # the tasks were cancelled
                return
            where = _WHERE.search(str(error))
            host = where[1] if where else "an executor"
            self.pythons = [*found.values(), Python(host=host, error=reason(str(error)))]
        finally:
            cloudpickle.unregister_pickle_by_value(probe)

    def _known(self) -> list[Any]:
        """Return what Spark knows of each executor, and of the driver."""
        tracker = self.context._jsc.sc().statusTracker()  # noqa: SLF001 - not in PySpark
        return list(tracker.getExecutorInfos())


def reason(told: str) -> str:
    """Return the line of a program's output, or of an error in Spark, that states the reason.

    It is the message of the last Python traceback, the last line of a worker's output, or the first
    line of a Java error.
    """
    _, is_task, why = told.rpartition("(TID") if _WHERE.search(told) else ("", "", told)
    why = why.partition("): ")[2] if is_task else why
    why = why.partition("\n\tat ")[0].partition("\nPYTHONPATH was:")[0]
    _, is_worker, output = why.rpartition(_WORKER)
    _, is_traceback, last = output.rpartition("Traceback (most recent call last):\n")
    indent = min((len(x) - len(x.lstrip()) for x in last.splitlines() if x.strip()), default=0)
    lines = [x[indent:] for x in last.splitlines() if x.strip()]
    if is_traceback:
        lines = [line for line in lines if not line[0].isspace()]
    elif is_worker:
        lines = lines[-1:]
    lines = [stated for line in lines if (stated := _JAVA.sub("", line).strip())]
    return lines[0] if lines else output.strip()
