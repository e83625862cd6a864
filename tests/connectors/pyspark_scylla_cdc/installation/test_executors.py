"""The Pythons of executors, examined by tasks of a real Spark session."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import InheritableThread

from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.installation.executors import executors
from pyspark_scylla_cdc.installation.faults import faults
from pyspark_scylla_cdc.installation.pythons import (
    Command,
    Python,
    Unusable,
    planner_command,
    this_python,
)
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


def test_healthy(context: SparkContext) -> None:
    """A driver that runs tasks itself is one executor."""
    runs = executors(context, OWN, {}, SECONDS)
    [python] = runs.pythons
    assert isinstance(python, Python)
    assert (runs.count, runs.unexamined, runs.late) == (1, 0, None)
    assert python.version == this_python({}).version
    assert not context.getJobTags()


@pytest.mark.slow
def test_another_version_of_python(context: SparkContext, tmp_path: Path) -> None:
    """If Spark refuses the executors' Python because of its version, the fault says so."""
    command, here = newer_python(tmp_path), this_python({})
    runs = executors(context, command, {}, SECONDS)
    [refused] = runs.pythons
    newer = f"3.{sys.version_info.minor + 1}"
    assert isinstance(refused, Unusable)
    assert refused.version == newer
    assert refused.reason.startswith("[PYTHON_VERSION_MISMATCH] Python in worker has different")
    [fault] = faults(here, command, here, runs)
    assert f"{command.path} is Python {newer}, and this process runs" in fault.found
    assert fault.remedy.startswith("use the same minor version of Python on all machines")


def test_python_that_does_not_exist(context: SparkContext) -> None:
    """A Python that does not exist is named with the reason."""
    [missing] = executors(context, Command("./no/bin/python"), {}, SECONDS).pythons
    assert isinstance(missing, Unusable)
    assert missing.where.endswith("executor driver")
    assert missing.reason.startswith('Cannot run program "./no/bin/python"')


@pytest.mark.slow
def test_no_free_core(context: SparkContext, tmp_path: Path) -> None:
    """If no task of the check can run, it ends in time, and the application can run others."""
    with busy(context, tmp_path / "end"):
        runs = executors(context, OWN, {}, 0.5)
    assert runs.late is not None
    assert runs.late.seconds == 0.5
    assert runs.late.driver.startswith("127.0.0.1:")
    assert runs.pythons == []
    assert executors(context, OWN, {}, SECONDS).late is None


@pytest.mark.slow
def test_session_with_no_free_core(context: SparkContext, tmp_path: Path) -> None:
    """`session` raises a one-line error if the executors do not run its tasks in time."""
    with (
        busy(context, tmp_path / "end"),
        pytest.raises(ConfigurationError, match=r"after 0.5 s, \d tasks on executors still ran"),
    ):
        check(context, timeout=0.5)


def test_setting_that_spark_ignores(context: SparkContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """`spark.pyspark.python` is named if Spark starts another Python for data sources."""
    command = planner_command(context)
    assert not command.note
    conf = context.getConf().set("spark.pyspark.python", "/opt/python")
    monkeypatch.setattr(context, "getConf", lambda: conf)
    ignored = f"Spark ignores spark.pyspark.python=/opt/python and starts {command.path}"
    assert ignored in planner_command(context).note
    conf.set("spark.pyspark.python", command.path)
    assert not planner_command(context).note


def test_variable_that_a_start_script_sets(
    context: SparkContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Spark started with another command than this process names, the note says so."""
    command = planner_command(context)
    assert "pyspark" in command.modules
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    note = planner_command(context).note
    assert f"command is ./environment/bin/python, but Spark started with {command.path}" in note
    assert "conf/spark-env.sh" in note


def test_no_thread_remains(context: SparkContext) -> None:
    """The thread that watches the deadline ends with the check."""
    before = threading.active_count()
    executors(context, OWN, {}, SECONDS)
    assert threading.active_count() <= before
