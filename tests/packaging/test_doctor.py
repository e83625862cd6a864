"""On a cluster whose machines share no files, each fault is named, and its remedy works."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from zipfile import ZipFile

import pytest
from attrs import frozen

from tests.cluster.environment import add_package, executor_environment
from tests.cluster.log import numbered_log
from tests.cluster.machine import Isolation, best_isolation
from tests.cluster.standalone import SYSTEM_PATH, Standalone, standalone
from tests.packaging.conftest import Environment, make_environment

pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.timeout(600),  # each application starts a JVM
    pytest.mark.skipif(
        best_isolation() is Isolation.NONE, reason="this system lets no process hide a folder"
    ),
]

HEALTHY = "Spark finds the data source on the driver and on each executor."
READ = """
import sys
from pyspark.sql import SparkSession
import pyspark_scylla_cdc

builder = SparkSession.builder
for setting in sys.argv[2:]:
    builder = builder.config(*setting.split("=", 1))
spark = pyspark_scylla_cdc.session(builder)
reader = spark.read.format("scylla_cdc").option("hosts", sys.argv[1]).option("format", "changes")
print(reader.option("consistencyLevel", "ONE").load("ks.t").count(), "rows")
"""


@frozen
class Driver:
    """The machine from which applications are started, in the folder `work` of its disk.

    Its folder `own` is an environment with the package; `python3` on its PATH has nothing.
    """

    cluster: Standalone

    @property
    def environment(self) -> Path:
        """The environment with the package, as programs see it."""
        return self.cluster.driver.home / "own"

    @property
    def work(self) -> Path:
        """Where applications are started, as the test sees it."""
        return self.cluster.driver.disk / "work"

    @property
    def activated(self) -> dict[str, str]:
        """The variables of a shell in which the environment is activated."""
        return {"PATH": f"{self.environment}/bin:{SYSTEM_PATH}"}

    def examine(
        self, *arguments: str, conf: Mapping[str, str] | None = None, **variables: str
    ) -> str:
        """What the command `doctor` says; its lines are not broken."""
        given = [f"--conf={name}={value}" for name, value in (conf or {}).items()]
        command = ["-m", "pyspark_scylla_cdc", "doctor", *arguments, *given]
        ran = self.run(*command, **variables)
        assert ran.stdout, ran.stderr
        assert (ran.returncode == 0) == (HEALTHY in ran.stdout), ran.stdout + ran.stderr
        return ran.stdout

    def run(self, *arguments: str, **variables: str) -> CompletedProcess[str]:
        """Run the environment's Python, which is not activated."""
        machine = self.cluster.driver
        env = {
            **self.cluster.variables(machine),
            "PYTHONPATH": self.cluster.pyspark,
            **variables,
        }
        where = ("env", "-C", f"{machine.home}/work")
        return machine.run(*where, f"{self.environment}/bin/python", *arguments, env=env)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    """A cluster on whose machines `python3` has nothing."""
    bare = make_environment(tmp_path / "bare").folder
    with standalone(tmp_path / "cluster", best_isolation(), bare) as cluster:
        yield cluster


@pytest.fixture
def driver(cluster: Standalone, wheel: Path) -> Driver:
    """The driver of the cluster."""
    driver = Driver(cluster)
    driver.work.mkdir()
    executor_environment(cluster.driver.disk / "own", wheel)
    return driver


@pytest.fixture
def archive(driver: Driver) -> dict[str, str]:
    """The setting that ships the driver's environment."""
    machine = driver.cluster.driver
    with tarfile.open(machine.disk / "environment.tar.gz", "w:gz", compresslevel=1) as file:
        file.add(machine.disk / "own", ".")
    return {"spark.archives": f"{machine.home}/environment.tar.gz#environment"}


def remedies(told: str) -> list[str]:
    """The remedies in what the command said."""
    return re.findall("^ +Remedy: (.+)$", told, re.MULTILINE)


def test_python_of_an_environment_that_is_not_activated(driver: Driver) -> None:
    """Spark plans with another Python, which has no package: locally, and with a cluster."""
    local, remote = ("--master", "local[1]"), ("--master", driver.cluster.master)
    for master in (local, remote):
        told = driver.examine(*master, conf=driver.cluster.conf)
        assert "Spark plans with" in told
        assert f"PYSPARK_PYTHON={driver.environment}/bin/python" in remedies(told)[0]
    own = f"{driver.environment}/bin/python"
    assert HEALTHY in driver.examine(*local, PYSPARK_PYTHON=own)
    told = driver.examine(*remote, conf=driver.cluster.conf, PYSPARK_PYTHON=own)
    assert "does not run" in told  # the executors lack it, which is the next fault
    assert "install the environment at this path on each machine" in remedies(told)[0]


def test_package_on_the_driver_only(driver: Driver, wheel: Path) -> None:
    """The executors' Python lacks it, shipped by `--py-files` or not. Installed, it is found."""
    cluster = driver.cluster
    zipped = driver.work / "package.zip"
    with ZipFile(zipped, "w") as file, ZipFile(wheel) as unpacked:
        for name in unpacked.namelist():
            file.writestr(name, unpacked.read(name))
    shipped = {**cluster.conf, "spark.submit.pyFiles": f"{cluster.driver.home}/work/package.zip"}
    for conf in (cluster.conf, shipped):
        told = driver.examine("--master", cluster.master, conf=conf, **driver.activated)
        assert "python3 has no pyarrow, pandas, scylla-cdc" in told
        assert all("pip install 'scylla-cdc[spark]' there" in remedy for remedy in remedies(told))
    for machine in cluster.workers:
        add_package(Environment(machine.disk / "environment"), wheel)
    with numbered_log(cluster.driver.address, 1) as log:
        where = ("--option", f"hosts={log.scylla.contact_point}", "--option", "keyspace=system")
        master = ("--master", cluster.master)
        told = driver.examine(*master, *where, conf=cluster.conf, **driver.activated)
    assert "cannot read the table's schema" in told
    assert HEALTHY in driver.examine(*master, conf=cluster.conf, **driver.activated)


def test_archive(driver: Driver, archive: dict[str, str]) -> None:
    """Its Python has to be on the driver, too, and nothing may override it on the executors."""
    cluster = driver.cluster
    master, conf = ("--master", cluster.master), {**cluster.conf, **archive}
    shipped = {"PYSPARK_PYTHON": "./environment/bin/python"}
    told = driver.examine(*master, conf=conf, **shipped)
    assert "Spark plans with ./environment/bin/python, which does not run there" in told
    [link] = re.findall(r"\(ln -s (\S+) environment\)", told)
    assert link == str(driver.environment)

    overridden = {**shipped, "PYSPARK_DRIVER_PYTHON": f"{driver.environment}/bin/python"}
    told = driver.examine(*master, conf=conf, **overridden)
    assert re.search(r"on [\d.]+ executor \d+, \S+ does not run \(.*No such file", told)
    assert "unset PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON" in remedies(told)[0]

    settings = [f"{name}={value}" for name, value in {**conf, "spark.master": master[1]}.items()]
    with numbered_log(cluster.driver.address, 1) as log:
        ran = driver.run("-c", READ, log.scylla.contact_point, *settings)
    assert ran.stdout == "1 rows\n", ran.stderr
    assert (driver.work / "environment").readlink() == driver.environment
    assert HEALTHY in driver.examine(*master, conf=conf, **shipped)


def test_session_says_what_is_wrong(driver: Driver) -> None:
    """In one line, before any query."""
    settings = {**driver.cluster.conf, "spark.master": driver.cluster.master}
    given = [f"{name}={value}" for name, value in settings.items()]
    last = driver.run("-c", READ, "none", *given).stderr.strip().splitlines()[-1]
    assert last.startswith("cdc_reader.errors.ConfigurationError: PYSPARK_PYTHON is ")
    assert "does not run" in last
    assert "spark.archives" in last
