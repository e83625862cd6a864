"""On a cluster whose machines share no files, each fault is found, and its remedy works."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest
from attrs import frozen

from tests.packaging.cluster import Cluster, can_hide, running
from tests.packaging.conftest import Environment, make_environment

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # each application starts a JVM
    pytest.mark.skipif(not can_hide(), reason="this machine lets no process hide a folder"),
]

SYSTEM_PATH = "/usr/bin:/bin"
HEALTHY = "Spark finds the data source on the driver and on each executor."
READ = """
import sys
from pyspark.sql import SparkSession
import pyspark_scylla_cdc

builder = SparkSession.builder
for setting in sys.argv[2:]:
    builder = builder.config(*setting.split("=", 1))
spark = pyspark_scylla_cdc.session(builder)
reader = spark.read.format("scylla_cdc").option("hosts", sys.argv[1])
print(reader.option("consistencyLevel", "ONE").load("TABLE").count(), "rows")
"""


@frozen
class Driver:
    """A machine that starts applications."""

    environment: Environment
    folder: Path
    settings: dict[str, str]

    def examine(
        self, *arguments: str, conf: Mapping[str, str] | None = None, **variables: str
    ) -> str:
        """Run the command `doctor`; return its output, without line breaks inside lines."""
        given = [f"--conf={name}={value}" for name, value in (conf or {}).items()]
        command = ["-m", "pyspark_scylla_cdc", "doctor", *arguments, *given]
        ran = self.run(*command, **variables)
        assert ran.stdout, ran.stderr
        assert (ran.returncode == 0) == (HEALTHY in ran.stdout), ran.stdout + ran.stderr
        return ran.stdout

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the environment's Python, which is not activated."""
        return subprocess.run(
            [self.environment.python, *arguments],
            cwd=self.folder,
            env={**self.settings, **variables},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def driver(tmp_path: Path, wheel: Path) -> Driver:
    """A driver with the package; the `python3` on its PATH has nothing."""
    home = tmp_path / "driver"
    environment = make_environment(home / "environment")
    environment.borrow()
    environment.install(wheel)
    (home / "work").mkdir()
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "HOME") if name in os.environ}
    path = f"{make_environment(home / 'bare').folder}/bin:{SYSTEM_PATH}"
    return Driver(environment, home / "work", {**kept, "PATH": path})


@pytest.fixture
def on_workers(tmp_path: Path) -> Environment:
    """The environment of the workers' `python3`, which has nothing."""
    return make_environment(tmp_path / "on-workers")


@pytest.fixture
def cluster(tmp_path: Path, driver: Driver, on_workers: Environment) -> Iterator[Cluster]:
    """A cluster that does not see the driver's files."""
    path = f"{on_workers.folder}/bin:{SYSTEM_PATH}"
    with running(tmp_path, path, driver.folder.parent) as cluster:
        yield cluster


@pytest.fixture
def archive(driver: Driver) -> dict[str, str]:
    """The setting that ships the driver's environment."""
    packed = driver.folder.parent / "environment.tar.gz"
    with tarfile.open(packed, "w:gz") as file:
        file.add(driver.environment.folder, ".")
    return {"spark.archives": f"{packed}#environment"}


def remedies(told: str) -> list[str]:
    """Return the remedies in the command's output."""
    return re.findall("^ +Remedy: (.+)$", told, re.MULTILINE)


def test_python_of_an_environment_that_is_not_activated(driver: Driver) -> None:
    """Even locally, Spark plans with another Python, which lacks the package."""
    local = ("--master", "local[1]")
    told = driver.examine(*local)
    assert "Spark plans with" in told
    [remedy] = remedies(told)
    assert f"PYSPARK_PYTHON={driver.environment.python}" in remedy
    assert HEALTHY in driver.examine(*local, PYSPARK_PYTHON=str(driver.environment.python))


def test_package_on_the_driver_only(
    driver: Driver, cluster: Cluster, on_workers: Environment, wheel: Path, scylla: Scylla
) -> None:
    """The executors' Python lacks it, even with `--py-files`, until it is installed there."""
    activated = {"PATH": f"{driver.environment.folder}/bin:{SYSTEM_PATH}"}
    zipped = driver.folder / "package.zip"
    with ZipFile(zipped, "w") as file, ZipFile(wheel) as unpacked:
        for name in unpacked.namelist():
            file.writestr(name, unpacked.read(name))
    shipped = {**cluster.conf, "spark.submit.pyFiles": str(zipped)}
    for conf in (cluster.conf, shipped):
        told = driver.examine("--master", cluster.master, conf=conf, **activated)
        assert "python3 has no pyarrow, pandas, scylla-cdc" in told
        assert all("pip install 'scylla-cdc[spark]' there" in remedy for remedy in remedies(told))
    on_workers.borrow()
    on_workers.install(wheel)
    where = ("--option", f"hosts={scylla.contact_point}", "--option", "keyspace=system")
    told = driver.examine("--master", cluster.master, *where, conf=cluster.conf, **activated)
    assert "cannot read the table's schema" in told
    assert HEALTHY in driver.examine("--master", cluster.master, conf=cluster.conf, **activated)


def test_archive(
    driver: Driver, cluster: Cluster, archive: dict[str, str], scylla: Scylla, keyspace: str
) -> None:
    """The driver needs its Python too, and nothing may override it on the executors."""
    master, conf = ("--master", cluster.master), {**cluster.conf, **archive}
    shipped = {"PYSPARK_PYTHON": "./environment/bin/python"}
    told = driver.examine(*master, conf=conf, **shipped)
    assert "Spark plans with ./environment/bin/python, which does not run there" in told
    [link] = re.findall(r"\(ln -s (\S+) environment\)", told)
    assert link == str(driver.environment.folder)

    overridden = {**shipped, "PYSPARK_DRIVER_PYTHON": str(driver.environment.python)}
    told = driver.examine(*master, conf=conf, **overridden)
    assert re.search(r"on 127\.0\.0\.\d executor \d+, \S+ does not run \(.*No such file", told)
    assert "unset PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON" in remedies(told)[0]

    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
    )
    scylla.session.execute(f"INSERT INTO {keyspace}.t (pk) VALUES (1)")
    settings = [f"{name}={value}" for name, value in {**conf, "spark.master": master[1]}.items()]
    code = READ.replace("TABLE", f"{keyspace}.t")
    ran = driver.run("-c", code, scylla.contact_point, *settings)
    assert ran.stdout == "1 rows\n", ran.stderr
    assert (driver.folder / "environment").readlink() == driver.environment.folder
    assert HEALTHY in driver.examine(*master, conf=conf, **shipped)


def test_session_says_what_is_wrong(driver: Driver, cluster: Cluster) -> None:
    """The one-line error comes before any query."""
    settings = {**cluster.conf, "spark.master": cluster.master}
    code = READ.replace("TABLE", "ks.t")
    ran = driver.run("-c", code, "none", *(f"{name}={value}" for name, value in settings.items()))
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith("cdc_reader.errors.ConfigurationError: PYSPARK_PYTHON is ")
    assert "does not run" in last
    assert "spark.archives" in last
