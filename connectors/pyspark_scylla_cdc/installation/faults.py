"""Finds faults in the Python interpreters of a Spark application, with a remedy for each."""

from __future__ import annotations

import sys
from pathlib import Path

from attrs import frozen
from pyspark import SparkContext

from cdc_reader.errors import ConnectionFailedError
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


def examine(
    context: SparkContext, options: dict[str, str], timeout: float = TIMEOUT
) -> tuple[list[Facts], list[Fault]]:
    """Return the Pythons of an application, each with its role, and their faults.

    The executors are examined if the driver has no fault, for up to `timeout` seconds.
    """
    command = Command.of(context)
    driver, plans = probe.facts({}), planner(command, options)
    pythons = [{"role": "driver", **driver}, {"role": "planner", **plans}]
    if fault := fault_of(driver, command, plans, on_driver=True):
        return pythons, [fault]
    found, unexamined = executors(context, command, options, timeout)
    pythons += [{"role": "executor", **each} for each in found]
    faults = [fault_of(plans, command, each, on_driver=False) for each in found]
    faults += [_unexamined(context, unexamined) if unexamined else None]
    return pythons, [fault for fault in faults if fault is not None]


def fault_of(expected: Facts, command: Command, python: Facts, *, on_driver: bool) -> Fault | None:
    """Return the first fault of a Python, or None; others may be its consequences."""
    where = f"on {python['host']}, {python.get('python', command.path)}"
    if on_driver:
        where = f"on the driver, Spark plans with {command.path or repr('')}, which"
    if differs := _difference(expected, python):
        remedy = _of_driver(expected, command) if on_driver else _of_executors(command)
        return Fault(f"{where} {differs}", remedy)
    if python["cluster"] in ("", "reached"):
        return None
    is_unreachable = python["cluster"].startswith(ConnectionFailedError.__name__)
    return Fault(
        f"{where} cannot read the table's schema ({python['cluster']})",
        "see that this machine reaches the nodes of ScyllaDB with these options"
        if is_unreachable
        else "correct the options or the table, as this error says",
    )


def _difference(expected: Facts, python: Facts) -> str:
    """Return how a Python differs from one that works; empty if it does not differ."""
    if "error" in python:
        return f"does not run ({python['error']})"
    if missing := ", ".join(label for fact, label in _NEEDED.items() if not python[fact]):
        return f"has no {missing}"
    for fact, label in _MATCHING.items():
        ends = -1 if fact == "version" else None
        if python[fact].split(".")[:ends] != expected[fact].split(".")[:ends]:
            return f"has {label} {python[fact]}, and {expected['python']} has {expected[fact]}"
    return ""


def _of_driver(driver: Facts, command: Command) -> str:
    path = Path(command.path)
    if len(path.parts) > 1 and not path.is_absolute():  # where Spark unpacks archives
        return (
            f"move any {path.parts[0]} in the driver's working directory away, and link the "
            f"driver's environment there (ln -s {sys.prefix} {path.parts[0]}), or {_SESSION}"
        )
    return (
        f"before Spark starts, set PYSPARK_PYTHON={driver['python']} and unset "
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


def _unexamined(context: SparkContext, unexamined: str) -> Fault:
    host, port = (context.getConf().get(f"spark.driver.{part}") for part in ("host", "port"))
    return Fault(
        f"{unexamined}: the cluster has no free cores, or executors cannot reach the driver at "
        f"{host}:{port}",
        "look at the application in Spark's user interface: if it has no executors, end other "
        "applications or request less; if its executors start and fail, set spark.driver.host to "
        "an address that they reach, and open the driver's ports; otherwise, raise the timeout",
    )
