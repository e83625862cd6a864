"""The how-to, followed exactly on machines that have only Spark and Python."""

from __future__ import annotations

import os
import re
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from attrs import frozen

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session
from tests.cluster.standalone import Standalone

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/run-on-a-cluster.md").read_text()
HEALTHY = "Spark finds the data source on the driver and on each executor."
SETTINGS, CONSTRAINTS = "spark-defaults.conf", "constraints.txt"
ARCHIVE = "environment.tar.gz"
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

pytestmark = [
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.xdist_group("howto"),
    pytest.mark.timeout(600),
]


def blocks(language: str) -> list[str]:
    """Return the page's code blocks in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@frozen
class Reader:
    """A reader who follows the page, in the directory `reader` of the driver's disk."""

    cluster: Standalone

    @property
    def folder(self) -> Path:
        """The directory in which the reader works, as a path that the test can open."""
        return self.cluster.driver.disk / "reader"

    def adapted(self, text: str, hosts: str) -> str:
        """Replace the page's cluster, server and storage with the test's."""
        text = text.replace("spark://spark.example.com:7077", self.cluster.master)
        text = text.replace("scylla.example.com:9042", hosts)
        return text.replace("/data/", f"{self.cluster.driver.store}/")

    def run(self, *command: str, **variables: str) -> CompletedProcess[str]:
        """Run a command in the reader's directory."""
        machine = self.cluster.driver
        here = f"{machine.home}/reader"
        unset = ("PYSPARK", "PYTHON", "SPARK", "VIRTUAL_ENV")
        system = {name: text for name, text in os.environ.items() if not name.startswith(unset)}
        python = Path(sys._base_executable).parent  # type: ignore[attr-defined]
        own = self.cluster.variables(machine)
        env = {
            **system,
            **own,
            "HOME": system.get("HOME", here),
            "PATH": f"{machine.home}/spark/bin:{python}:{own['PATH']}",
            "PIP_CONSTRAINT": f"{here}/{CONSTRAINTS}",
            "PIP_FIND_LINKS": f"{here} {system.get('PIP_FIND_LINKS', '')}",
            "SPARK_CONF_DIR": here,  # an administrator's settings
            **variables,
        }
        return machine.run("env", "-C", here, *command, env=env)


@contextmanager
def shop(cluster: Standalone, login: tuple[str, str] | None = None) -> Iterator[str]:
    """Run a server with the page's table and `ROWS` rows in its log. Yield its contact point."""
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
def reader(bare: Standalone, wheel: Path) -> Reader:
    """The reader of the page, for whom `pip install scylla-cdc` installs this version."""
    reader = Reader(bare)
    reader.folder.mkdir()
    (reader.folder / wheel.name).write_bytes(wheel.read_bytes())
    _, version, *_ = wheel.name.split("-")
    tested = (ROOT / "constraints.txt").read_text()
    (reader.folder / CONSTRAINTS).write_text(f"{tested}scylla-cdc=={version}\n")
    settings = "\n".join(f"{name} {value}" for name, value in bare.conf.items())
    (reader.folder / SETTINGS).write_text(settings)
    return reader


@pytest.fixture(scope="module")
def followed(reader: Reader) -> Iterator[tuple[str, str]]:
    """The output of the page's commands, run in order, and the server's contact point."""
    with shop(reader.cluster) as hosts:
        [application] = blocks("python")
        (reader.folder / "orders.py").write_text(reader.adapted(application, hosts))
        script = reader.adapted("".join(blocks("console")).replace("$ ", ""), hosts)
        ran = reader.run("bash", "-euxc", script)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        yield ran.stdout, hosts


@pytest.mark.usefixtures("followed")
def test_application(bare: Standalone) -> None:
    """The application has written all rows to the storage."""
    import pyarrow.dataset as ds

    rows = ds.dataset(bare.store / "orders_from_cluster", exclude_invalid_files=True).to_table()
    assert sorted(rows["number"].to_pylist()) == list(range(ROWS))


def test_doctor(followed: tuple[str, str]) -> None:
    """`doctor` finds no fault, and each machine reaches the server."""
    told, _ = followed
    assert HEALTHY in told
    assert len(re.findall(r"^ *(?:planner|executor) .* reached *$", told, re.MULTILINE)) == 3


@pytest.mark.usefixtures("followed")
def test_size_of_the_archive(reader: Reader) -> None:
    """The archive lacks pyspark, and its size is within 20% of the size stated on the page."""
    archive = reader.folder / ARCHIVE
    size = archive.stat().st_size / 1e6
    print(f"environment.tar.gz: {size:.0f} MB")
    [said] = re.findall(r"about\s+(\d+)\s+MB", PAGE)
    assert abs(size / int(said) - 1) < 0.2
    with tarfile.open(archive) as packed:
        assert not any("/site-packages/pyspark/" in name for name in packed.getnames())


def test_notebook(reader: Reader, followed: tuple[str, str]) -> None:
    """The notebook example works, also with a password in a file on each machine's disk.

    It creates the link to the environment of its Python.
    """
    bare, (_, hosts) = reader.cluster, followed
    for machine in (bare.driver, *bare.workers):
        file = machine.disk / "password"
        file.write_text(f"{LOGIN[1]}\n")
        file.chmod(0o600)
    notebook = reader.folder / "notebook"
    notebook.mkdir()
    os.link(reader.folder / ARCHIVE, notebook / ARCHIVE)
    program, with_login = blocks("py")
    with_login = with_login.replace("/etc/scylla/password", f"{bare.driver.home}/password")
    with shop(bare, LOGIN) as guarded:
        cells = [
            reader.adapted(program, hosts),
            reader.adapted(with_login, guarded),
            "print(orders.count(), 'rows')",
        ]
        python, variables = "../environment/bin/python", {"PYTHONPATH": bare.pyspark}
        ran = reader.run("env", "-C", "notebook", python, "-c", "\n".join(cells), **variables)
    assert ran.stdout == 2 * f"{ROWS} rows\n", ran.stderr
    assert (notebook / "environment").is_symlink()
    assert LOGIN[1] not in ran.stdout + ran.stderr
