"""Faults of the Pythons of a Spark application, with their remedies."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from attrs import evolve

from pyspark_scylla_cdc.installation.doctor import unexamined
from pyspark_scylla_cdc.installation.executors import Executors, Late
from pyspark_scylla_cdc.installation.faults import Fault, faults
from pyspark_scylla_cdc.installation.pythons import Command, Python, Unusable

COMMAND = Command("./environment/bin/python")
HERE = Python(
    host="driver",
    folder="/work",
    python="/own/bin/python",
    version="3.11.7",
    pyspark="4.1.1",
    pyarrow="21.0.0",
    pandas="2.3.3",
    package="0.2.0",
    kernel="compiled",
    cluster="",
)
PLANNER = evolve(HERE, python="/srv/environment/bin/python", cluster="reached")
EXECUTOR = evolve(PLANNER, host="worker", folder="/spark/app/0")
OLD = {"version": "3.10.12"}
REFUSED = "ConnectionFailedError: cannot connect to scylla:9042"


def found(
    planner: Python | Unusable,
    *executors: Python | Unusable,
    late: Late | None = None,
    command: Command = COMMAND,
) -> Sequence[Fault]:
    """Return the faults of an application whose driver is `HERE`."""
    return faults(HERE, command, planner, Executors(executors, len(executors), late))


def test_healthy() -> None:
    """There is no fault if all Pythons match."""
    assert found(PLANNER, EXECUTOR) == []


@pytest.mark.parametrize(
    ("differs", "expected"),
    [
        ({"pandas": ""}, "has no pandas"),
        ({"pyarrow": "", "package": ""}, "has no pyarrow, scylla-cdc"),
        (OLD, "is Python 3.10.12; this process runs /own/bin/python, which is Python 3.11.7"),
        ({"package": "0.1.0"}, "has scylla-cdc 0.1.0; this process runs /own/bin/python, which"),
    ],
)
def test_old_link_on_the_driver(differs: dict[str, str], expected: str) -> None:
    """A link to an old environment is a fault, also if the executors have the same environment."""
    planner, executor = evolve(PLANNER, **differs), evolve(EXECUTOR, **differs)
    fault = found(planner, executor)[0]
    assert fault.found.startswith(f"on the driver, Spark plans with {PLANNER.python}, which ")
    assert expected in fault.found
    assert "move environment out of the driver's working directory" in fault.remedy
    assert f"ln -s {sys.prefix} environment" in fault.remedy


def test_packages_missing_from_the_running_python() -> None:
    """If Spark plans with the Python of this process, only an installation helps."""
    [fault] = found(evolve(PLANNER, python=HERE.python, pandas=""))
    assert fault.remedy == "pip install 'scylla-cdc[spark]' with that Python"


def test_python_of_the_system_on_the_driver() -> None:
    """If Spark plans with the system's Python, the remedy names the Python of this process."""
    planner = evolve(PLANNER, python="/usr/bin/python3", **OLD)
    [fault] = found(planner, command=Command("python3"))
    assert fault.remedy.startswith(f"before Spark starts, set PYSPARK_PYTHON={HERE.python}")


def test_driver_that_does_not_reach_the_cluster() -> None:
    """The driver must reach ScyllaDB too, because it plans."""
    [fault] = found(evolve(PLANNER, cluster=REFUSED), EXECUTOR)
    assert (
        fault.found == f"on the driver, {PLANNER.python} cannot read the table's schema ({REFUSED})"
    )
    assert "reaches the nodes of ScyllaDB" in fault.remedy


@pytest.mark.parametrize(
    ("differs", "expected"),
    [
        ({"pandas": "", **OLD}, "has no pandas"),
        (OLD, "is Python 3.10.12, and the driver's is 3.11.7"),
        ({"package": "0.1.0"}, "has scylla-cdc 0.1.0, and the driver has 0.2.0"),
        ({"pyspark": "4.0.0"}, "has Spark 4.0.0, and the driver has 4.1.1"),
        ({"cluster": REFUSED}, f"cannot read the table's schema ({REFUSED})"),
    ],
)
def test_executors_that_differ_from_the_planner(differs: dict[str, str], expected: str) -> None:
    """An executor is compared with the Python with which Spark plans."""
    [fault] = found(PLANNER, EXECUTOR, evolve(EXECUTOR, host="other", **differs))
    assert fault.found == f"on other, {PLANNER.python} {expected}"


def test_executors_are_compared_with_the_planner_and_not_with_this_process() -> None:
    """If only this process differs, the fault is reported once."""
    old = {"package": "0.1.0"}
    assert len(found(evolve(PLANNER, **old), evolve(EXECUTOR, **old))) == 1
    assert len(found(evolve(PLANNER, **old), EXECUTOR)) == 2


def test_python_that_spark_refuses() -> None:
    """An executor's Python of another version is a fault of its own."""
    refused = Unusable("10.0.0.1 executor 0", "[PYTHON_VERSION_MISMATCH] …", version="3.12")
    [fault] = found(PLANNER, refused)
    assert fault.found == (
        "on 10.0.0.1 executor 0, ./environment/bin/python is Python 3.12, and this process runs "
        "/own/bin/python, which is Python 3.11.7"
    )
    assert fault.remedy.startswith("use the same minor version of Python on all machines")


def test_planner_that_is_refused_on_executors_too() -> None:
    """If the planner's Python has another version, executors refuse for the same reason."""
    refused = Unusable("an executor", "[PYTHON_VERSION_MISMATCH] …", version="3.12")
    assert len(found(evolve(PLANNER, version="3.12.1"), refused)) == 1
    assert len(found(evolve(PLANNER, version="3.13.0"), refused)) == 2


def test_no_executor() -> None:
    """If no task runs in time, the fault states the reasons, and the driver's address."""
    [fault] = found(PLANNER, late=Late(120, 0, "driver:4040"))
    assert fault.found == (
        "no executor ran a task within 120 s: the cluster has no free cores, or executors cannot "
        "reach the driver at driver:4040"
    )


def test_tasks_that_do_not_end() -> None:
    """If tasks ran but did not end, the fault says so."""
    [fault] = found(PLANNER, EXECUTOR, late=Late(120, 3, "driver:4040"))
    assert fault.found == "after 120 s, 3 tasks on executors still ran"


def test_executors_without_a_task() -> None:
    """`doctor` does not call an application healthy if some executors ran no task."""
    [fault] = unexamined(Executors([EXECUTOR], count=3))
    assert fault.found.startswith("1 of 3 executors were examined, without a fault; no task ran on")
    assert unexamined(Executors([EXECUTOR], count=1)) == []
