"""Faults of the Pythons of a Spark application, with their remedies."""

from __future__ import annotations

import sys

import pytest

from pyspark_scylla_cdc.installation.faults import fault_of
from pyspark_scylla_cdc.installation.pythons import Command, Facts

SHIPPED = Command("./environment/bin/python")
HERE: Facts = {
    "host": "driver",
    "folder": "/work",
    "python": "/own/bin/python",
    "version": "3.11.7",
    "pyspark": "4.1.1",
    "pyarrow": "21.0.0",
    "pandas": "2.3.3",
    "package": "0.2.0",
    "cluster": "",
}
PLANNER = {**HERE, "python": "/srv/environment/bin/python", "cluster": "reached"}
REFUSED = "ConnectionFailedError: cannot connect to scylla:9042"


def test_healthy() -> None:
    """There is no fault if all Pythons match; the last number of their version may differ."""
    assert fault_of(HERE, SHIPPED, {**PLANNER, "version": "3.11.8"}, on_driver=True) is None
    assert fault_of(PLANNER, SHIPPED, {**PLANNER, "host": "worker"}, on_driver=False) is None


@pytest.mark.parametrize("on_driver", [True, False])
@pytest.mark.parametrize(
    ("differs", "expected"),
    [
        ({"pandas": ""}, "has no pandas"),
        ({"pyarrow": "", "package": ""}, "has no pyarrow, scylla-cdc"),
        ({"version": "3.10.12"}, "has Python 3.10.12, and /own/bin/python has 3.11.7"),
        ({"package": "0.1.0"}, "has scylla-cdc 0.1.0, and /own/bin/python has 0.2.0"),
        ({"pyspark": "4.0.0"}, "has Spark 4.0.0, and /own/bin/python has 4.1.1"),
        ({"error": "No such file"}, " (No such file)"),
        ({"cluster": REFUSED}, f"cannot read the table's schema ({REFUSED})"),
    ],
)
def test_pythons_that_differ(differs: dict[str, str], expected: str, on_driver: bool) -> None:
    """A difference is a fault on the driver and on executors."""
    fault = fault_of(HERE, SHIPPED, {**PLANNER, **differs}, on_driver=on_driver)
    assert fault is not None
    where = (
        "the driver, Spark plans with ./environment" if on_driver else "driver, /srv/environment"
    )
    assert fault.found.startswith(f"on {where}/bin/python")
    assert fault.found.endswith(expected)


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        (REFUSED, "see that this machine reaches the nodes"),
        ("TableNotFoundError: table ks.t was not found", "correct the options or the table, as"),
    ],
)
def test_remedy_for_a_table(found: str, remedy: str) -> None:
    """Only a cluster that does not answer is a matter of the network."""
    fault = fault_of(HERE, SHIPPED, {**PLANNER, "cluster": found}, on_driver=True)
    assert fault is not None
    assert fault.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("command", "python", "remedy"),
    [
        (SHIPPED.path, "/srv/environment/bin/python", f"ln -s {sys.prefix} environment"),
        (HERE["python"], HERE["python"], "pip install 'scylla-cdc[spark]' with that Python"),
        ("python3", "/usr/bin/python3", "before Spark starts, set PYSPARK_PYTHON=/own/bin/python"),
    ],
)
def test_remedy_on_the_driver(command: str, python: str, remedy: str) -> None:
    """The remedy depends on which Python Spark plans with."""
    planner = {**PLANNER, "python": python, "pandas": ""}
    fault = fault_of(HERE, Command(command), planner, on_driver=True)
    assert fault is not None
    assert remedy in fault.remedy


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        (Command("/own/bin/python", SHIPPED.path), "unset PYSPARK_DRIVER_PYTHON, which overrides"),
        (Command("/own/bin/python"), "spark.archives=environment.tar.gz#environment"),
        (SHIPPED, "pip install 'scylla-cdc[spark]' there"),
    ],
)
def test_remedy_on_executors(command: Command, remedy: str) -> None:
    """The remedy depends on the command that Spark starts."""
    fault = fault_of(HERE, command, {**PLANNER, "pandas": ""}, on_driver=False)
    assert fault is not None
    assert remedy in fault.remedy
