"""Finds faults in the Python interpreters of a Spark application, with a remedy for each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from pyspark_scylla_cdc.installation.pythons import Command, Python, Unusable

OLDEST_SPARK = (4, 0)
_INSTALL = "pip install 'scylla-cdc[spark]'"


@frozen
class Fault:
    """A fault and its remedy. `found` says in one line what was found and what is expected."""

    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.found}: {self.remedy}"


def faults(
    here: Python,
    command: Command,
    planner: Python | Unusable,
    executors: Sequence[Python | Unusable],
) -> list[Fault]:
    """Return the faults, in the order in which to fix them.

    `here` is the driver's Python. `command` is the command that Spark starts on all machines.
    """
    found = list(_faults_of_driver(here, command, planner))
    others = (
        [python for python in executors if not _is_same(python, planner)] if found else executors
    )
    return [
        *found,
        *(fault for each in others for fault in _faults_of_executor(here, command, each)),
    ]


def _is_same(one: Python | Unusable, other: Python | Unusable) -> bool:
    """Return True if both are the same Python on the same machine, so one remedy is enough."""
    if isinstance(one, Unusable) or isinstance(other, Unusable):
        return False
    return (one.host, one.python) == (other.host, other.python)


def _faults_of_driver(
    here: Python, command: Command, planner: Python | Unusable
) -> Iterator[Fault]:
    if _numbers(here.pyspark) < OLDEST_SPARK:
        yield Fault(f"this is Spark {here.pyspark}", "use Spark 4.0 or later")
    if isinstance(planner, Unusable):
        yield Fault(
            f"on the driver, Spark plans with {command.path}, which does not run there "
            f"({planner.reason})",
            _link(command) if _is_shipped(command) else _use(here),
        )
    elif not planner.package:
        yield Fault(
            f"on the driver, Spark plans with {planner.python}, which has no scylla-cdc; this "
            f"process runs {here.python}",
            _use(here),
        )


def _faults_of_executor(
    here: Python, command: Command, python: Python | Unusable
) -> Iterator[Fault]:
    """Yield an executor's first fault; others may be its consequences."""
    if isinstance(python, Unusable):
        yield Fault(
            f"on {python.where}, {command.path} does not run ({python.reason})", _provide(command)
        )
        return
    where = f"on {python.host}, {python.python}"
    missing = [name for name in ("pyarrow", "pandas") if not getattr(python, name)]
    if not python.package:
        missing.append("scylla-cdc")
    if missing:
        yield Fault(
            f"{where} has no {', '.join(missing)}",
            f"{_INSTALL} there, with that Python, or {_ship(command)}; --py-files do not reach a "
            "data source",
        )
    elif python.minor_version != here.minor_version:
        yield Fault(
            f"{where} is Python {python.version}, and the driver's is {here.version}",
            "use the same minor version of Python on all machines",
        )
    elif python.package != here.package:
        yield Fault(
            f"{where} has scylla-cdc {python.package}, and the driver has {here.package}",
            "install the same version on all machines",
        )
    elif python.pyspark != here.pyspark:
        yield Fault(
            f"{where} has Spark {python.pyspark}, and the driver has {here.pyspark}",
            "use the cluster's version of pyspark on the driver",
        )
    elif python.cluster not in ("", "reached"):
        yield Fault(
            f"{where} cannot read the table's schema ({python.cluster})",
            "see that this machine reaches the nodes of ScyllaDB with these options",
        )


def _use(here: Python) -> str:
    return (
        f"before Spark starts, set PYSPARK_PYTHON={here.python} and unset PYSPARK_DRIVER_PYTHON, "
        "or make the session with pyspark_scylla_cdc.session(builder)"
    )


def _link(command: Command) -> str:
    folder = Path(command.path).parts[0]
    return (
        f"link the driver's environment there (ln -s {sys.prefix} {folder}), or make the session "
        "with pyspark_scylla_cdc.session(builder), which does it"
    )


def _provide(command: Command) -> str:
    return f"install the environment at this path on each machine, or {_ship(command)}"


def _ship(command: Command) -> str:
    if command.overridden:
        return f"unset PYSPARK_DRIVER_PYTHON, which overrides PYSPARK_PYTHON={command.overridden}"
    if _is_shipped(command):
        return "ship an environment that has this path with spark.archives"
    return (
        "ship the driver's environment with spark.archives=environment.tar.gz#environment, unset "
        "PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON, and make the session with "
        "pyspark_scylla_cdc.session(builder)"
    )


def _is_shipped(command: Command) -> bool:
    """Return True if the command is relative to the directory where Spark unpacks archives."""
    return "/" in command.path and not Path(command.path).is_absolute()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
