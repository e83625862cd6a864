"""The Pythons of executors, examined by tasks of a real Spark session."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import InheritableThread

from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.installation import probe
from pyspark_scylla_cdc.installation.faults import examine
from pyspark_scylla_cdc.installation.pythons import Command, Facts, executors
from pyspark_scylla_cdc.installation.session import check

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OWN = Command(sys.executable)
SECONDS = 120.0
NEWER = """
import sys
from collections import namedtuple

Info = namedtuple("Info", ["major", "minor", "micro", "releaselevel", "serial"])
sys.version_info = Info(3, sys.version_info.minor + 1, 0, "final", 0)
"""


@pytest.fixture
def context(spark: SparkSession) -> SparkContext:
    """The context of the session, whose driver runs the tasks."""
    return spark.sparkContext


def newer_python(folder: Path) -> Command:
    """Create a program that runs this Python, but reports the next minor version."""
    (folder / "sitecustomize.py").write_text(NEWER)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={folder}:$PYTHONPATH exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return Command(str(script))


@contextmanager
def busy(context: SparkContext, end: Path) -> Iterator[None]:
    """Let another job of the application occupy all cores."""
    begun, cores = end.with_suffix(".begun"), context.defaultParallelism

    def occupy(_: object) -> list[int]:
        with begun.open("a") as file:
            file.write("x")
        while not end.exists():
            time.sleep(0.05)
        return []

    job = context.parallelize(range(cores), cores).mapPartitions(occupy)
    thread = InheritableThread(target=job.collect)
    thread.start()
    while not begun.exists() or begun.stat().st_size < cores:
        time.sleep(0.05)
    try:
        yield
    finally:
        end.touch()
        thread.join()


def examined(context: SparkContext, command: Command) -> list[Facts]:
    """Return the Pythons of executors, which are all examined in time."""
    found, unexamined = executors(context, command, {}, SECONDS)
    assert not unexamined
    return found


@pytest.mark.slow
def test_healthy(context: SparkContext) -> None:
    """A driver that runs tasks itself is one executor."""
    assert "pyspark" in Command.of(context).modules
    [python] = examined(context, OWN)
    assert python["version"] == probe.facts({})["version"]


@pytest.mark.slow
def test_another_version_of_python(context: SparkContext, tmp_path: Path) -> None:
    """If Spark refuses the executors' Python because of its version, the error says so."""
    [refused] = examined(context, newer_python(tmp_path))
    assert refused["error"].startswith("[PYTHON_VERSION_MISMATCH] Python in worker has different")
    assert f"3.{sys.version_info.minor + 1}" in refused["error"]


@pytest.mark.slow
def test_python_that_does_not_exist(context: SparkContext) -> None:
    """A Python that does not exist is named with the reason."""
    [missing] = examined(context, Command("./no/bin/python"))
    assert missing["host"].endswith("executor driver")
    assert missing["error"].startswith('Cannot run program "./no/bin/python"')


@pytest.mark.slow
def test_no_free_core(context: SparkContext, tmp_path: Path) -> None:
    """If no task of the check can run, it ends in time, and the application can run others."""
    with busy(context, tmp_path / "end"):
        _, [fault] = examine(context, {}, 0.5)
    assert fault.found.startswith("0 of 1 executors were examined within 0.5 s: the cluster has no")
    assert "reach the driver at 127.0.0.1:" in fault.found
    assert examined(context, OWN)


@pytest.mark.slow
def test_session_with_no_free_core(context: SparkContext, tmp_path: Path) -> None:
    """`session` raises a one-line error if the executors do not run its tasks in time."""
    with (
        busy(context, tmp_path / "end"),
        pytest.raises(ConfigurationError, match="0 of 1 executors were examined"),
    ):
        check(context, timeout=0.5)
