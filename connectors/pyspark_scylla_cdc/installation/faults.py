"""Finds faults in the Python interpreters of a Spark application, with a remedy for each."""

from __future__ import annotations

import sys
from pathlib import Path

from attrs import frozen
from pyspark import SparkContext

from pyspark_scylla_cdc.installation import probe
from pyspark_scylla_cdc.installation.pythons import TIMEOUT, Command, Facts, executors, planner

_NEEDED = {"pyarrow": "pyarrow", "pandas": "pandas", "package": "scylla-cdc"}
_MATCHING = {"version": "Python", "pyspark": "Spark", "package": "scylla-cdc"}
"""The facts that must be the same on all machines, the version of Python except for its end."""
_INSTALL = "pip install 'scylla-cdc[spark]'"
_SESSION = "make the session with pyspark_scylla_cdc.session(builder)"


@frozen
class Fault:
    """A fault and its remedy. `found` says in one line what was found and what is expected."""

    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.found}: {self.remedy}"


@frozen
class Examination:
    """What was found of an application: its Pythons, each with its role, and their faults."""

    command: Command
    pythons: list[Facts]
    faults: list[Fault]


def examine(
    context: SparkContext, options: dict[str, str], timeout: float = TIMEOUT
) -> Examination:
    """Examine the driver and, if it has no fault, the executors, for up to `timeout` seconds."""
    command, here = Command.of(context), probe.facts({})
    plans = planner(command, options)
    pythons = [{"role": "driver", **here}, {"role": "planner", **plans}]
    if fault := fault_of(here, command, plans, on_driver=True):
        return Examination(command, pythons, [fault])
    found, unexamined = executors(context, command, options, timeout)
    each_fault = (fault_of(plans, command, each, on_driver=False) for each in found)
    faults = [fault for fault in each_fault if fault is not None]
    if unexamined:
        faults.append(_unexamined(context, unexamined))
    return Examination(command, [*pythons, *({"role": "executor", **x} for x in found)], faults)


def _unexamined(context: SparkContext, unexamined: str) -> Fault:
    conf = context.getConf()
    return Fault(
        f"{unexamined}: the cluster has no free cores, or executors cannot reach the driver at "
        f"{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}",
        "look at the application in the user interface of Spark: if it has no executors, end other "
        "applications or request less; if its executors start and fail, set spark.driver.host to "
        "an address that they reach, and open the driver's ports; otherwise, raise the timeout",
    )


def fault_of(expected: Facts, command: Command, python: Facts, *, on_driver: bool) -> Fault | None:
    """Return the first fault of a Python, or None; others may be its consequences."""
    where = f"on {python['host']}, {python.get('python', command.path)}"
    if on_driver:
        where = f"on the driver, Spark plans with {command.path}, which"
    if differs := _difference(expected, python):
        remedy = _of_driver(expected, command) if on_driver else _of_executors(command)
        return Fault(f"{where} {differs}", remedy)
    if python["cluster"] in ("", "reached"):
        return None
    return Fault(
        f"{where} cannot read the table's schema ({python['cluster']})",
        "see that this machine reaches the nodes of ScyllaDB with these options",
    )


def _difference(expected: Facts, python: Facts) -> str:
    """Return how a Python differs from one that works; empty if it does not differ."""
    if "error" in python:
        return f"does not run ({python['error']})"
    if missing := ", ".join(label for fact, label in _NEEDED.items() if not python[fact]):
        return f"has no {missing}"
    for fact, label in _MATCHING.items():
        if _compared(python, fact) != _compared(expected, fact):
            return f"has {label} {python[fact]}, and {expected['python']} has {expected[fact]}"
    return ""


def _compared(python: Facts, fact: str) -> str:
    return python[fact].rpartition(".")[0] if fact == "version" else python[fact]


def _of_driver(here: Facts, command: Command) -> str:
    path = Path(command.path)
    if len(path.parts) > 1 and not path.is_absolute():  # where Spark unpacks archives
        return (
            f"if there is a {path.parts[0]} in the driver's working directory, move it away; link "
            f"the driver's environment there (ln -s {sys.prefix} {path.parts[0]}), or {_SESSION}, "
            "which does it"
        )
    return (
        f"before Spark starts, set PYSPARK_PYTHON={here['python']} and unset "
        f"PYSPARK_DRIVER_PYTHON, or {_SESSION}; if Spark plans with it already, {_INSTALL} with "
        "that Python"
    )


def _of_executors(command: Command) -> str:
    if command.overridden:
        return f"unset PYSPARK_DRIVER_PYTHON, which overrides PYSPARK_PYTHON={command.overridden}"
    return (
        f"{_INSTALL} there, with that Python and in the versions of the driver (--py-files do not "
        "reach a data source), or ship the driver's environment with "
        "spark.archives=environment.tar.gz#environment, unset PYSPARK_PYTHON and "
        f"PYSPARK_DRIVER_PYTHON, and {_SESSION}"
    )
