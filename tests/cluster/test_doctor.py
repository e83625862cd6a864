"""On a cluster whose machines share no files, `doctor` names each fault and a remedy that works."""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from zipfile import ZipFile

import pytest
from attrs import frozen

from tests.cluster.log import numbered_log
from tests.cluster.machine import Isolation, best_isolation
from tests.cluster.standalone import SYSTEM_PATH, Standalone, copy_environment

pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.xdist_group("doctor"),
    pytest.mark.timeout(600),  # each application starts a JVM
    pytest.mark.skipif(
        best_isolation() is Isolation.NONE, reason="this system lets no process hide a folder"
    ),
]

HEALTHY = "Spark finds the data source on the driver and on each executor."
UNUSED = ("/deltalake", "/include", "/tests")
"""The parts of the environment that `doctor` does not need."""
SESSION = """
import sys
from pyspark.sql import SparkSession
import pyspark_scylla_cdc

builder = SparkSession.builder
for setting in sys.argv[1:]:
    builder = builder.config(*setting.split("=", 1))
pyspark_scylla_cdc.session(builder)
"""


@frozen
class Driver:
    """The machine that starts applications, in the directory `work` of its disk.

    The directory `own` is an environment with the package. `python3` on the PATH has no packages.
    """

    cluster: Standalone

    @property
    def environment(self) -> Path:
        """The environment with the package, as a path that the machine's programs use."""
        return self.cluster.driver.home / "own"

    @property
    def work(self) -> Path:
        """The directory in which applications start, as a path that the test can open."""
        return self.cluster.driver.disk / "work"

    @property
    def activated(self) -> dict[str, str]:
        """The variables of a shell that has activated the environment."""
        return {"PATH": f"{self.environment}/bin:{SYSTEM_PATH}"}

    def examine(
        self, *arguments: str, conf: Mapping[str, str] | None = None, **variables: str
    ) -> str:
        """Return the output of `doctor`, and check that it matches the exit status."""
        given = [f"--conf={name}={value}" for name, value in (conf or {}).items()]
        command = ["-m", "pyspark_scylla_cdc", "doctor", *arguments, *given]
        ran = self.run(*command, **variables)
        assert ran.stdout, ran.stderr
        assert (ran.returncode == 0) == (HEALTHY in ran.stdout), ran.stdout + ran.stderr
        return ran.stdout

    def run(self, *arguments: str, **variables: str) -> CompletedProcess[str]:
        """Run the Python of the environment, without activating it."""
        spark = {"PYTHONPATH": self.cluster.pyspark}
        return self._run(f"{self.environment}/bin/python", *arguments, **spark, **variables)

    def enter(self, command: str) -> None:
        """Run a shell command, which must succeed."""
        ran = self._run("sh", "-c", command)
        assert ran.returncode == 0, ran.stderr

    def _run(self, *command: str, **variables: str) -> CompletedProcess[str]:
        machine = self.cluster.driver
        env = {**self.cluster.variables(machine), **variables}
        return machine.run("env", "-C", f"{machine.home}/work", *command, env=env)


@pytest.fixture(scope="module")
def driver(bare: Standalone, environment: Path) -> Driver:
    """The driver of a cluster without packages."""
    driver = Driver(bare)
    driver.work.mkdir()
    copy_environment(environment, bare.driver.disk / "own")
    return driver


@pytest.fixture(scope="module")
def archive(driver: Driver) -> dict[str, str]:
    """The setting that ships the driver's environment without the parts in `UNUSED`."""
    machine = driver.cluster.driver
    with tarfile.open(machine.disk / "environment.tar.gz", "w:gz", compresslevel=1) as file:
        file.add(
            machine.disk / "own", ".", filter=lambda at: None if at.name.endswith(UNUSED) else at
        )
    return {"spark.archives": f"{machine.home}/environment.tar.gz#environment"}


def remedies(told: str) -> list[str]:
    """Return the remedies in the output of `doctor`."""
    return re.findall("^ +Remedy: (.+)$", told, re.MULTILINE)


def test_python_of_an_environment_that_is_not_activated(driver: Driver) -> None:
    """If the environment is not activated, Spark plans with a Python that lacks the package."""
    local = ("--master", "local[1]")
    told = driver.examine(*local)
    assert "Spark plans with" in told
    own = f"{driver.environment}/bin/python"
    assert f"PYSPARK_PYTHON={own}" in remedies(told)[0]
    assert HEALTHY in driver.examine(*local, PYSPARK_PYTHON=own)


def test_package_on_the_driver_only(driver: Driver, wheel: Path, environment: Path) -> None:
    """The executors' Python lacks the package until it is installed, even with `--py-files`."""
    cluster = driver.cluster
    master = ("--master", cluster.master)
    zipped = driver.work / "package.zip"
    with ZipFile(zipped, "w") as file, ZipFile(wheel) as unpacked:
        for name in unpacked.namelist():
            file.writestr(name, unpacked.read(name))
    shipped = {**cluster.conf, "spark.submit.pyFiles": f"{cluster.driver.home}/work/package.zip"}
    for conf in (cluster.conf, shipped):
        told = driver.examine(*master, conf=conf, **driver.activated)
        assert "python3 has no pyarrow, pandas, scylla-cdc" in told
        assert all("pip install 'scylla-cdc[spark]' there" in remedy for remedy in remedies(told))
    for machine in cluster.workers:
        shutil.rmtree(machine.disk / "environment")
        copy_environment(environment, machine.disk / "environment")
    assert HEALTHY in driver.examine(*master, conf=cluster.conf, **driver.activated)


def test_table_that_is_not_reached(driver: Driver) -> None:
    """If the options name a table, each machine reads its schema, and failures are reported."""
    own = f"{driver.environment}/bin/python"
    with numbered_log(driver.cluster.driver.address, 1) as log:
        where = ("--option", f"hosts={log.scylla.contact_point}", "--option", "path=ks.missing")
        told = driver.examine("--master", "local[1]", *where, PYSPARK_PYTHON=own)
    assert "cannot read the table's schema (TableNotFoundError" in told
    assert "correct the options or the table, as this error says" in remedies(told)[0]


def test_archive(driver: Driver, archive: dict[str, str]) -> None:
    """The archive's Python must also be on the driver. No setting may override it on executors."""
    cluster = driver.cluster
    master, conf = ("--master", cluster.master), {**cluster.conf, **archive}
    shipped = {"PYSPARK_PYTHON": "./environment/bin/python"}
    told = driver.examine(*master, conf=conf, **shipped)
    assert "Spark plans with ./environment/bin/python, which does not run" in told
    [link] = re.findall(r"\((ln -s \S+ environment)\)", remedies(told)[0])
    driver.enter(link)
    assert HEALTHY in driver.examine(*master, conf=conf, **shipped)

    overridden = {**shipped, "PYSPARK_DRIVER_PYTHON": f"{driver.environment}/bin/python"}
    told = driver.examine(*master, conf=conf, **overridden)
    assert re.search(r"on [\d.]+ executor \d+, \S+ does not run \(.*No such file", told)
    unset = "unset PYSPARK_DRIVER_PYTHON, which overrides PYSPARK_PYTHON=./environment/bin/python"
    assert unset in remedies(told)[0]  # the other settings are as in the healthy case above


def test_session_says_what_is_wrong(driver: Driver) -> None:
    """`session` raises a one-line error before any query."""
    settings = {**driver.cluster.conf, "spark.master": driver.cluster.master}
    given = [f"{name}={value}" for name, value in settings.items()]
    told = driver.run("-c", SESSION, *given).stderr
    [line] = re.findall(
        "^cdc_reader.errors.ConfigurationError: PYSPARK_PYTHON is .+$", told, re.MULTILINE
    )
    assert "does not run" in line
    assert "spark.archives" in line
