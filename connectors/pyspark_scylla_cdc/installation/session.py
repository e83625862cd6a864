"""Starts a Spark session that finds the data source."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.installation.faults import examine
from pyspark_scylla_cdc.installation.pythons import TIMEOUT, Command
from pyspark_scylla_cdc.installation.submitted import submitted_settings

_PYTHON, _DRIVER_PYTHON = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"
_ARCHIVES = ("spark.archives", "spark.yarn.dist.archives")
_ENVIRONMENT = "environment"


def session(builder: SparkSession.Builder, *, timeout: float = TIMEOUT) -> SparkSession:
    """Start the builder's session so that Spark finds the data source on all machines.

    Spark starts the same command for data sources on the driver and on every executor. The command
    is PYSPARK_PYTHON if it is set. Otherwise, if ``spark.archives`` ships an environment as
    ``#environment``, the command is ``./environment/bin/python``, and a link named ``environment``
    in the working directory points to the driver's environment. Otherwise, the command is the
    running Python. PYSPARK_DRIVER_PYTHON, which would override the command on executors, is removed
    from the environment of this process.

    Raises ConfigurationError, with a one-line message, if Spark's Python on the driver or on an
    executor cannot run the data source, or if the executors do not run the tasks of this check
    within `timeout` seconds. A Spark Connect session is returned unchanged, because it uses the
    server's environment.
    """
    if not _jvm_runs():
        prepare(_archives(builder))
    started = builder.getOrCreate()
    if hasattr(started, "sparkContext"):
        check(started.sparkContext, timeout)
    return started


def prepare(archives: str) -> None:
    """Set the command that a new JVM inherits for data sources, and create the link if needed."""
    if not os.environ.get(_PYTHON):
        os.environ[_PYTHON] = _shipped(archives) or sys.executable
    os.environ.pop(_DRIVER_PYTHON, None)
    path = Path(os.environ[_PYTHON])
    if not path.is_absolute() and len(path.parts) > 1 and not path.exists():
        _link(Path(path.parts[0]))


def check(context: SparkContext, timeout: float = TIMEOUT) -> None:
    """Raise ConfigurationError if a Python of the application cannot run the data source.

    The executors have `timeout` seconds to run the tasks of this check.
    """
    _, faults = examine(context, {}, timeout)
    if faults:
        remedy = f"{faults[0].found}: {faults[0].remedy}"
        raise ConfigurationError(_PYTHON, Command.of(context).path, remedy)


def _jvm_runs() -> bool:
    """Return True if a JVM already runs (spark-submit starts one), so its environment is fixed."""
    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ  # noqa: SLF001


def _archives(builder: SparkSession.Builder) -> str:
    """Return the archives that the session will ship.

    They are in the builder, in PYSPARK_SUBMIT_ARGS, or in Spark's file of defaults.
    """
    given: dict[str, Any] = {**submitted_settings(), **builder._options}  # noqa: SLF001
    return ",".join(str(given[name]) for name in _ARCHIVES if given.get(name))


def _shipped(archives: str) -> str | None:
    """Return the path of Python in the archive with a ``#name``; None if there is none.

    Of several archives, the one named `environment` is the environment.
    """
    names = {name for archive in archives.split(",") if (name := archive.partition("#")[2])}
    if len(names) > 1 and _ENVIRONMENT not in names:
        raise ConfigurationError(
            _ARCHIVES[0],
            archives,
            f"several archives have a name, so it is not clear which contains Python: name that "
            f"archive #{_ENVIRONMENT}, or set {_PYTHON} to ./NAME/bin/python",
        )
    if not names:
        return None
    name = _ENVIRONMENT if _ENVIRONMENT in names else names.pop()
    return f"./{name}/bin/python"


def _link(name: Path) -> None:
    try:
        name.symlink_to(sys.prefix)
    except OSError as error:
        remedy = (
            f"the driver needs a link from {name.absolute()} to {sys.prefix}, which cannot be "
            f"made ({error.strerror}): start the driver in a directory where it can, or set "
            f"{_PYTHON}"
        )
        raise ConfigurationError(_PYTHON, os.environ[_PYTHON], remedy) from None
