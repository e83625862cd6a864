"""The how-to, followed word for word on machines with nothing but Spark and Python."""

from __future__ import annotations

import os
import re
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session
from tests.cluster.machine import best_isolation
from tests.cluster.standalone import Standalone, standalone

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/run-on-a-cluster.md").read_text()
HEALTHY = "Spark finds the data source on the driver and on each executor."
SETTINGS = "spark-defaults.conf"
ROWS = 500
LOGIN = ("analyst", "open sesame")
KEYSPACE = (
    "CREATE KEYSPACE shop WITH replication = "
    "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1} AND tablets = {'enabled': false}"
)
TABLE = (
    "CREATE TABLE shop.orders (customer int, number int, status text, "
    "PRIMARY KEY (customer, number)) WITH cdc = {'enabled': true}"
)
INSERT = "INSERT INTO shop.orders (customer, number, status) VALUES (?, ?, 'placed')"

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(600)]


def blocks(language: str) -> list[str]:
    """The blocks of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@contextmanager
def shop(cluster: Standalone, login: tuple[str, str] | None = None) -> Iterator[str]:
    """The server of the page's table, with `ROWS` rows in its log; yields its contact point."""
    with EmbeddedScylla(cluster.driver.address, vnodes=4, credentials=login) as scylla:
        session = open_session(scylla.host, scylla.port, login)
        session.use_client_timestamp = False
        for statement in (KEYSPACE, TABLE):
            session.execute(statement)
        insert = session.prepare(INSERT)
        for number in range(ROWS):
            session.execute(insert, (number % 7, number))
        session.cluster.shutdown()
        yield scylla.contact_point


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A cluster without the package."""
    with standalone(tmp_path_factory.mktemp("cluster"), best_isolation()) as cluster:
        settings = "\n".join(f"{name} {value}" for name, value in cluster.conf.items())
        (cluster.driver.disk / SETTINGS).write_text(settings)
        yield cluster


@pytest.fixture(scope="module")
def variables(bare: Standalone, wheel: Path) -> dict[str, str]:
    """The variables of the reader's shell: `pip install scylla-cdc` finds this version."""
    driver = bare.driver
    constraints = driver.disk / "constraints.txt"
    (driver.disk / wheel.name).write_bytes(wheel.read_bytes())
    found = f"scylla-cdc @ file://{driver.home}/{wheel.name}\n"
    constraints.write_text((ROOT / "constraints.txt").read_text() + found)
    mine = ("PYSPARK", "PYTHON", "SPARK", "VIRTUAL_ENV")
    system = {name: text for name, text in os.environ.items() if not name.startswith(mine)}
    python = Path(sys._base_executable).parent  # type: ignore[attr-defined]
    own = bare.variables(driver)
    return {
        **system,
        **own,
        "HOME": system.get("HOME", str(driver.home)),
        "PATH": f"{driver.home}/spark/bin:{python}:{own['PATH']}",
        "PIP_CONSTRAINT": f"{driver.home}/constraints.txt",
        # What an administrator has set on the reader's machine.
        "SPARK_CONF_DIR": str(driver.home),
    }


def mine(text: str, cluster: Standalone, hosts: str) -> str:
    """Replace the page's cluster, server and storage by the test's."""
    text = text.replace("spark://spark.example.com:7077", cluster.master)
    text = text.replace("scylla.example.com:9042", hosts)
    return text.replace("/data/", f"{cluster.driver.store}/")


@pytest.fixture(scope="module")
def followed(bare: Standalone, variables: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Run the page's commands in order; return their output, and the server's contact point."""
    with shop(bare) as hosts:
        [application] = blocks("python")
        (bare.driver.disk / "orders.py").write_text(mine(application, bare, hosts))
        script = mine("".join(blocks("console")).replace("$ ", ""), bare, hosts)
        ran = bare.driver.run("bash", "-euxc", script, env=variables)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        yield ran.stdout, hosts


def test_application(bare: Standalone, followed: tuple[str, str]) -> None:
    """After it has run, the storage has the rows."""
    import pyarrow.dataset as ds

    del followed
    rows = ds.dataset(bare.store / "orders_from_cluster", exclude_invalid_files=True).to_table()
    assert sorted(rows["number"].to_pylist()) == list(range(ROWS))


def test_doctor(followed: tuple[str, str]) -> None:
    """It finds no fault, and reaches the server from all machines."""
    told, _ = followed
    assert HEALTHY in told
    assert len(re.findall(r"^ *(?:planner|executor) .* reached *$", told, re.MULTILINE)) == 3


@pytest.mark.usefixtures("followed")
def test_size_of_the_archive(bare: Standalone) -> None:
    """It is within a fifth of the size on the page, because pyspark is not in it."""
    archive = bare.driver.disk / "environment.tar.gz"
    size = archive.stat().st_size / 1e6
    print(f"environment.tar.gz: {size:.0f} MB")
    [said] = re.findall(r"about\s+(\d+)\s+MB", PAGE)
    assert abs(size / int(said) - 1) < 0.2
    with tarfile.open(archive) as packed:
        assert not any("/site-packages/pyspark/" in name for name in packed.getnames())


def test_session_of_a_program(
    bare: Standalone, variables: dict[str, str], followed: tuple[str, str]
) -> None:
    """Python starts Spark, as in a notebook."""
    _, hosts = followed
    program, _ = blocks("py")
    spark = {"PYTHONPATH": bare.pyspark}
    ran = bare.driver.run(
        "environment/bin/python", "-c", mine(program, bare, hosts), env={**variables, **spark}
    )
    assert ran.stdout == f"{ROWS} rows\n", ran.stderr


@pytest.mark.usefixtures("followed")
def test_password_file(bare: Standalone, variables: dict[str, str]) -> None:
    """The file is on each machine's own disk."""
    for machine in (bare.driver, *bare.workers):
        file = machine.disk / "password"
        file.write_text(f"{LOGIN[1]}\n")
        file.chmod(0o600)
    _, program = blocks("py")
    program = program.replace("/etc/scylla/password", f"{bare.driver.home}/password")
    start = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
    with shop(bare, LOGIN) as hosts:
        code = f"{start}{mine(program, bare, hosts)}\nprint(orders.count(), 'rows')\n"
        (bare.driver.disk / "login.py").write_text(code)
        archive = "--archives environment.tar.gz#environment"
        submit = f"spark-submit --master {bare.master} {archive} login.py"
        env = {**variables, "PYSPARK_PYTHON": "./environment/bin/python"}
        ran = bare.driver.run("bash", "-ec", submit, env=env)
    assert ran.stdout == f"{ROWS} rows\n", ran.stderr
    assert LOGIN[1] not in ran.stdout + ran.stderr
