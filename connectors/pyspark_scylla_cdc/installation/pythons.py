"""Finds the Python interpreters that Spark starts on the driver.

For a Python data source, Spark starts the same command on the driver, where it plans, and on every
executor. The command is PYSPARK_DRIVER_PYTHON, or else PYSPARK_PYTHON, or else ``python3``. Spark
uses the values that these variables had when the driver's JVM started.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import tempfile
from contextlib import suppress
from typing import IO, Any

from attrs import frozen
from pyspark import SparkContext

from pyspark_scylla_cdc.installation import probe
from pyspark_scylla_cdc.installation.reasons import reason_in_output

TIMEOUT = 120.0
"""The default time, in seconds, in which a Python on the driver or on executors must answer."""

_IGNORED = ("spark.pyspark.driver.python", "spark.pyspark.python")
"""Settings that choose the Python of applications, but not that of Python data sources."""


@frozen
class Command:
    """The command that Spark starts for data sources.

    `overridden` is a PYSPARK_PYTHON that it overrides; `ignored` is a setting, as NAME=VALUE, that
    names another Python; `wanted` is the command that this process's variables name, if Spark's
    variables name another. `modules` is the PYTHONPATH that Spark gives the command.
    """

    path: str
    overridden: str = ""
    ignored: str = ""
    wanted: str = ""
    modules: str = ""

    @property
    def note(self) -> str:
        """A sentence that says why Spark starts another Python than the one that was set.

        It is empty if Spark starts that Python.
        """
        if self.ignored:
            return (
                f"For data sources, Spark ignores {self.ignored} and starts {self.path}; the "
                "environment variable PYSPARK_PYTHON sets it"
            )
        if self.wanted:
            return (
                f"In this process, the command is {self.wanted}, but Spark started with "
                f"{self.path}: the variable was set after Spark had started, or Spark's "
                "conf/spark-env.sh sets another; change it there"
            )
        return ""


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
    """A Python that does not run: where it is, and the reason that Spark or the system gave.

    If Spark refused it because its minor version differs from this process's, `version` says which.
    """

    where: str
    reason: str
    version: str = ""


def planner_command(context: SparkContext) -> Command:
    """Return the command that Spark starts for Python data sources."""
    jvm: Any = context._jvm  # noqa: SLF001 - PySpark has no other way to the JVM's variables
    of_driver, of_all = map(
        jvm.java.lang.System.getenv, ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
    )
    path = of_driver or of_all or "python3"
    overridden = of_all if of_driver and of_all and of_driver != of_all else ""
    own = os.environ.get("PYSPARK_DRIVER_PYTHON") or os.environ.get("PYSPARK_PYTHON") or path
    of_spark = jvm.org.apache.spark.api.python.PythonUtils.sparkPythonPath()
    return Command(
        path,
        overridden,
        ignored=_ignored(context, path),
        wanted="" if own == path else own,
        modules=os.pathsep.join(filter(None, [of_spark, os.environ.get("PYTHONPATH")])),
    )


def _ignored(context: SparkContext, path: str) -> str:
    conf = context.getConf()
    given = {name: conf.get(name) for name in _IGNORED}
    return next((f"{name}={text}" for name, text in given.items() if text and text != path), "")


def this_python(options: dict[str, str]) -> Python:
    """Return the facts about the running Python."""
    return Python(**probe.facts(options))


def planner(
    command: Command, options: dict[str, str], timeout: float = TIMEOUT
) -> Python | Unusable:
    """Return the Python in which Spark plans queries, on the driver.

    It has `timeout` seconds to answer.
    """
    # Files, not pipes: a program that a wrapper script started would keep pipes open.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
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
            return _unusable(command, error.strerror or str(error))
        except subprocess.TimeoutExpired:
            return _unusable(command, f"no answer within {timeout:g} s")
        printed, complaint = map(_text, (output, errors))
    if ran.returncode:
        return _unusable(command, reason_in_output(complaint) or f"exit status {ran.returncode}")
    return _parsed(printed) or _unusable(command, f"it ran no code, and printed {printed[:80]!r}")


def _unusable(command: Command, reason: str) -> Unusable:
    return Unusable("the driver", f"{command.path}: {reason}")


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _parsed(printed: str) -> Python | None:
    """Return the facts that the probe printed; a wrapper script may have printed other lines."""
    for line in reversed(printed.splitlines()):
        with suppress(ValueError, TypeError):
            return Python(**json.loads(line))
    return None
