"""Finds faults in the Python interpreters of a Spark application, with a remedy for each."""

from __future__ import annotations

import sys
from pathlib import Path

from attrs import frozen
from pyspark import SparkContext

from pyspark_scylla_cdc.installation import probe
from pyspark_scylla_cdc.installation.pythons import TIMEOUT, Command, Executors, Python, planner

_MATCHING = {"version": "Python", "pyspark": "Spark", "package": "scylla-cdc"}
"""The facts that must be the same on all machines, the version of Python except for its end."""


@frozen
class Fault:
    """A fault and its remedy. `found` says in one line what was found and what is expected."""

    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.found}: {self.remedy}"


@frozen
class Examination:
    """What was found of an application: its Pythons, by role, and their faults."""

    command: Command
    pythons: list[tuple[str, Python]]
    faults: list[Fault]


def examine(
    context: SparkContext, options: dict[str, str], timeout: float = TIMEOUT
) -> Examination:
    """Examine the driver and, if it has no fault, the executors, for up to `timeout` seconds."""
    command, here = Command.of(context), Python(**probe.facts({}))
    plans = planner(command, options)
    roles = [("driver", here), ("planner", plans)]
    if fault := fault_of(here, command, plans, on_driver=True):
        return Examination(command, roles, [fault])
    runs = Executors(context)
    runs.examine(command, options, timeout)
    each_fault = (fault_of(plans, command, each, on_driver=False) for each in runs.pythons)
    found = [fault for fault in each_fault if fault is not None]
    if runs.late or (len(runs.pythons) < runs.count and not found):
        conf = context.getConf()
        address = f"{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}"
        found.append(_unexamined(runs, address))
    return Examination(command, [*roles, *(("executor", each) for each in runs.pythons)], found)


def _unexamined(runs: Executors, address: str) -> Fault:
    return Fault(
        f"{len(runs.pythons)} of {runs.count} executors were examined "
        f"({runs.late or 'no task ran on the others'}): the cluster has no "
        f"free cores, or executors cannot reach the driver at {address}",
        "look at the application in the user interface of Spark or of the cluster: if it has no "
        "executors, end other applications or request fewer cores and less memory; if its "
        "executors start and fail, set spark.driver.host to an address that they reach, and open "
        "the ports of the driver; if the cluster only needs more time, raise the timeout",
    )


def fault_of(
    expected: Python, command: Command, python: Python, *, on_driver: bool
) -> Fault | None:
    """Return the first fault of a Python, or None; others may be its consequences."""
    where = f"on {python.host}, {python.python or command.path}"
    if on_driver:
        where = f"on the driver, Spark plans with {command.path}, which"
    remedy = _of_driver(expected, command, python) if on_driver else _ship(command)
    packages = {"pyarrow": python.pyarrow, "pandas": python.pandas, "scylla-cdc": python.package}
    missing = ", ".join(package for package, version in packages.items() if not version)
    if python.error:
        there = " there" if on_driver else ""
        return Fault(f"{where} does not run{there} ({python.error})", remedy)
    if missing:
        return Fault(f"{where} has no {missing}", remedy)
    for fact, label in _MATCHING.items():
        if _fact(python, fact) != _fact(expected, fact):
            has = f"has {label} {getattr(python, fact)}"
            found = f"{where} {has}, and {expected.python} has {getattr(expected, fact)}"
            return Fault(found, remedy)
    if python.cluster in ("", "reached"):
        return None
    return Fault(
        f"{where} cannot read the table's schema ({python.cluster})",
        "see that this machine reaches the nodes of ScyllaDB with these options",
    )


def _fact(python: Python, fact: str) -> str:
    text: str = getattr(python, fact)
    return ".".join(text.split(".")[:2]) if fact == "version" else text


def _of_driver(here: Python, command: Command, python: Python) -> str:
    if python.python and Path(python.python).parent.resolve() == Path(here.python).parent.resolve():
        return "pip install 'scylla-cdc[spark]' with that Python"
    if _is_shipped(command):
        folder = Path(command.path).parts[0]
        return (
            f"if there is a {folder} in the driver's working directory, move it away; link the "
            f"driver's environment there (ln -s {sys.prefix} {folder}), or make the session with "
            "pyspark_scylla_cdc.session(builder), which does it"
        )
    return (
        f"before Spark starts, set PYSPARK_PYTHON={here.python} and unset PYSPARK_DRIVER_PYTHON, "
        "or make the session with pyspark_scylla_cdc.session(builder)"
    )


def _ship(command: Command) -> str:
    if command.overridden:
        return f"unset PYSPARK_DRIVER_PYTHON, which overrides PYSPARK_PYTHON={command.overridden}"
    shipped = "spark.archives=environment.tar.gz#environment, unset PYSPARK_PYTHON and "
    return (
        "pip install 'scylla-cdc[spark]' there, with that Python and in the versions of the driver "
        "(--py-files do not reach a data source), or ship the driver's environment with "
        + ("spark.archives" if _is_shipped(command) else f"{shipped}PYSPARK_DRIVER_PYTHON")
        + ", and make the session with pyspark_scylla_cdc.session(builder)"
    )


def _is_shipped(command: Command) -> bool:
    """Return True if the command is relative to the directory where Spark unpacks archives."""
    return "/" in command.path and not Path(command.path).is_absolute()
