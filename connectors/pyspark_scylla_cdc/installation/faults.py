"""Finds faults in the Python interpreters of a Spark application, with a remedy for each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from pyspark_scylla_cdc.installation.executors import Executors, Late
from pyspark_scylla_cdc.installation.pythons import Command, Python, Unusable

OLDEST_SPARK = (4, 0)
_INSTALL = "pip install 'scylla-cdc[spark]'"
_SAME_PYTHON = "use the same minor version of Python on all machines"
_REACHED = ("", "reached")


@frozen
class Fault:
    """A fault and its remedy. `found` says in one line what was found and what is expected."""

    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.found}: {self.remedy}"


def faults(
    here: Python, command: Command, planner: Python | Unusable, executors: Executors
) -> list[Fault]:
    """Return the faults, in the order in which to fix them.

    `here` is the driver's Python. `command` is the command that Spark starts on all machines.
    """
    found = list(_faults_of_driver(here, command, planner))
    others = (
        [python for python in executors.pythons if not _is_consequence(python, here, planner)]
        if found
        else executors.pythons
    )
    expected = here if isinstance(planner, Unusable) else planner
    found += (
        fault for each in others for fault in _faults_of_executor(here, expected, command, each)
    )
    return [*found, _lateness(executors.late)] if executors.late else found


def _is_consequence(python: Python | Unusable, here: Python, planner: Python | Unusable) -> bool:
    """Return True if the remedy for the planner's Python is also the remedy for an executor's."""
    if isinstance(planner, Unusable):
        return False
    if isinstance(python, Unusable):
        return python.version == planner.minor_version != here.minor_version
    return (python.host, python.python) == (planner.host, planner.python)


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
    else:
        yield from _faults_of_planner(here, command, planner)


def _faults_of_planner(here: Python, command: Command, planner: Python) -> Iterator[Fault]:
    """Yield the planner's first fault; others may be its consequences."""
    where = f"on the driver, Spark plans with {planner.python}, which"
    if missing := _missing(planner):
        yield Fault(
            f"{where} has no {missing}; this process runs {here.python}",
            _provide_on_driver(here, command, planner),
        )
    elif planner.minor_version != here.minor_version:
        yield Fault(
            f"{where} is Python {planner.version}; this process runs {here.python}, which is "
            f"Python {here.version}",
            _provide_on_driver(here, command, planner),
        )
    elif planner.package != here.package:
        yield Fault(
            f"{where} has scylla-cdc {planner.package}; this process runs {here.python}, which has "
            f"{here.package}",
            _provide_on_driver(here, command, planner),
        )
    elif planner.cluster not in _REACHED:
        yield _unreached(f"on the driver, {planner.python}", planner)


def _faults_of_executor(
    here: Python, expected: Python, command: Command, python: Python | Unusable
) -> Iterator[Fault]:
    """Yield an executor's first fault; others may be its consequences.

    Its Python must match `expected`, the Python with which Spark plans.
    """
    if isinstance(python, Unusable):
        yield _unusable(here, command, python)
        return
    where = f"on {python.host}, {python.python}"
    if missing := _missing(python):
        yield Fault(
            f"{where} has no {missing}",
            f"{_INSTALL} there, with that Python, or {_ship(command)}; --py-files do not reach a "
            "data source",
        )
    elif python.minor_version != expected.minor_version:
        yield Fault(
            f"{where} is Python {python.version}, and the driver's is {expected.version}",
            _SAME_PYTHON,
        )
    elif python.package != expected.package:
        yield Fault(
            f"{where} has scylla-cdc {python.package}, and the driver has {expected.package}",
            "install the same version on all machines",
        )
    elif python.pyspark != here.pyspark:
        yield Fault(
            f"{where} has Spark {python.pyspark}, and the driver has {here.pyspark}",
            "use the cluster's version of pyspark on the driver",
        )
    elif python.cluster not in _REACHED:
        yield _unreached(where, python)


def _unusable(here: Python, command: Command, python: Unusable) -> Fault:
    if python.version:
        return Fault(
            f"on {python.where}, {command.path} is Python {python.version}, and this process runs "
            f"{here.python}, which is Python {here.version}",
            f"{_SAME_PYTHON}, or {_ship(command)}",
        )
    return Fault(
        f"on {python.where}, {command.path} does not run ({python.reason})", _provide(command)
    )


def _unreached(where: str, python: Python) -> Fault:
    return Fault(
        f"{where} cannot read the table's schema ({python.cluster})",
        "see that this machine reaches the nodes of ScyllaDB with these options",
    )


def _lateness(late: Late) -> Fault:
    if late.running:
        return Fault(
            f"after {late.seconds:g} s, {late.running} tasks on executors still ran",
            "see in the executors' logs what they wait for, or allow more time (timeout)",
        )
    return Fault(
        f"no executor ran a task within {late.seconds:g} s: the cluster has no free cores, or "
        f"executors cannot reach the driver at {late.driver}",
        "look at the application in the user interface of Spark or of the cluster: if it has no "
        "executors, end other applications or request fewer cores and less memory; if its "
        "executors start and fail, set spark.driver.host to an address that they reach, and open "
        "the ports of the driver; if the cluster only needs more time, raise the timeout",
    )


def _missing(python: Python) -> str:
    """Return the names of the packages that a Python lacks."""
    has = {"pyarrow": python.pyarrow, "pandas": python.pandas, "scylla-cdc": python.package}
    return ", ".join(name for name, version in has.items() if not version)


def _use(here: Python) -> str:
    return (
        f"before Spark starts, set PYSPARK_PYTHON={here.python} and unset PYSPARK_DRIVER_PYTHON, "
        "or make the session with pyspark_scylla_cdc.session(builder)"
    )


def _provide_on_driver(here: Python, command: Command, planner: Python) -> str:
    if Path(planner.python).parent.resolve() == Path(here.python).parent.resolve():
        return f"{_INSTALL} with that Python"
    if _is_shipped(command):
        folder = Path(command.path).parts[0]
        return f"move {folder} out of the driver's working directory, then {_link(command)}"
    return _use(here)


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
