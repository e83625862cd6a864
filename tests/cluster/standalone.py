"""A standalone Spark cluster: a master and workers, each on a machine with a separate Python."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Thread
from typing import IO, Any

import pyspark
from attrs import define, field

from tests.cluster.machine import Isolation, Machine
from tests.cluster.network import Network
from tests.locking import locked
from tests.quick_spark import INTERPRETED, START_FAST
from tests.spark_classes import reading, writing

SPARK = Path(pyspark.__file__).parent
ROOT = Path(__file__).parents[2]
WORKERS = 2
WORKER_MEMORY = "1g"
_MASTER_URL = r"Starting Spark master at (spark://\S+)"
_REGISTERED = "Successfully registered with master"
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
CLASSES = Path(__file__).parent / "programs" / "common_classes.py"
ARCHIVE = "classes.jsa"
"""The name of the archive of classes on a machine's disk; see `tests/spark_classes.py`."""


@define(eq=False)
class Standalone:
    """A running cluster.

    The master and the drivers run on the machine `driver`, which shares the test's network: a
    server in the test listens on that machine's address. All machines have Spark in the directory
    `spark` of their disks, and `python3` is the Python of their directory `environment`, if there
    is one.
    """

    network: Network
    folder: Path
    driver: Machine
    workers: list[Machine]
    java_options: str
    """The options of the JVMs on all machines."""
    master: str = field(default="", init=False)

    @property
    def store(self) -> Path:
        """The directory that all machines share, as a path that the test can open."""
        return self.folder / "store"

    @property
    def conf(self) -> dict[str, str]:
        """Settings of an application, small enough for workers to run several applications."""
        return {
            **INTERPRETED,
            "spark.driver.bindAddress": self.driver.address,
            "spark.driver.host": self.driver.address,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }

    @property
    def pyspark(self) -> str:
        """The PYTHONPATH for the package pyspark in the machines' Spark installation."""
        return ":".join(
            f"{self.driver.home}/spark/python/lib/{path.name}"
            for path in (SPARK / "python/lib").glob("*.zip")
        )

    def variables(self, machine: Machine) -> dict[str, str]:
        """Return the environment variables for programs on a machine."""
        java = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
        return {
            **java,
            "JAVA_TOOL_OPTIONS": self.java_options,
            "PATH": f"{machine.home}/environment/bin:{SYSTEM_PATH}",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": f"{machine.home}/spark",
            "SPARK_LOCAL_DIRS": f"{machine.home}/tmp",
            "SPARK_LOCAL_IP": machine.address,
        }

    def application(
        self,
        program: Path,
        *arguments: str | Path,
        conf: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Popen[str]:
        """Start a driver: a Python program whose first argument is Spark's settings as JSON."""
        copy = self.driver.disk / program.name
        shutil.copy(program, copy)
        given = {**self.conf, "spark.master": self.master, **(conf or {})}
        return self.driver.start(
            "python3",
            program.name,
            json.dumps(given),
            *arguments,
            env={
                **self.variables(self.driver),
                "PYTHONPATH": self.pyspark,
                "PYSPARK_PYTHON": "python3",
            },
            **settings,
        )

    def copy_module(self, module: Path) -> None:
        """Copy a module of the tests to the driver's machine, so that programs can import it."""
        there = self.driver.disk / module.relative_to(ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(module, there)

    def archive_classes(self, archive: Path) -> None:
        """Let all JVMs on the machines start from `archive`, which is created if it is missing.

        The archive suits all clusters whose machines have Spark at the same path.
        """
        if not archive.exists():
            made = self.driver.home / ARCHIVE
            conf = {"spark.master": "local[1]", "spark.driver.extraJavaOptions": writing(made)}
            application = self.application(CLASSES, conf=conf)
            assert application.wait() == 0
            shutil.move(self.driver.disk / ARCHIVE, archive)
        for machine in (self.driver, *self.workers):
            os.link(archive, machine.disk / ARCHIVE)
        self.java_options = reading(self.driver.home / ARCHIVE)

    def start_worker(self, machine: Machine) -> None:
        """Start a Spark worker on a machine, and wait until it is registered with the master."""
        size = ("--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", f"{machine.home}/work")
        self._start(machine, "worker.Worker", _REGISTERED, *size, self.master)

    def start_master(self) -> None:
        """Start the Spark master."""
        self.master = self._start(self.driver, "master.Master", _MASTER_URL)[1]

    def _start(self, machine: Machine, name: str, pattern: str, *arguments: str) -> re.Match[str]:
        """Start a Spark daemon, and wait until its log matches `pattern`. Return the match."""
        ports = ("--host", machine.address, "--port", "0", "--webui-port", "0")
        process = machine.start(
            machine.home / "spark/bin/spark-class",
            f"org.apache.spark.deploy.{name}",
            *ports,
            *arguments,
            env=self.variables(machine),
            stderr=PIPE,
        )
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(pattern, line):
                Thread(target=_drain, args=[process.stderr], daemon=True).start()
                return found
        raise AssertionError("".join(lines))


@contextmanager
def standalone(
    folder: Path,
    isolation: Isolation,
    environment: Path | None = None,
    java_options: str = START_FAST,
    archive: Path | None = None,
) -> Iterator[Standalone]:
    """Yield a running master and workers, whose disks are in `folder`.

    Each disk contains a copy of the Python environment in the directory `environment`. If the
    isolation gives the machines equal paths, their JVMs start from the classes in `archive`.
    """
    with ExitStack() as stack:
        network = stack.enter_context(Network(isolation))
        store = folder / "store"
        store.mkdir(parents=True)

        def machine(name: str, number: int) -> Machine:
            disk = folder / name
            disk.mkdir()
            if environment is not None:
                copy_environment(environment, disk / "environment")
            made = Machine(
                name,
                network.address(number),
                disk,
                store,
                SPARK,
                isolation,
                hidden=(ROOT, folder),
                has_network=name != "driver",
            )
            stack.enter_context(made)
            network.connect(made)
            return made

        driver = machine("driver", 1)
        workers = [machine(f"worker-{number}", 10 + number) for number in range(1, WORKERS + 1)]
        cluster = Standalone(network, folder, driver, workers, java_options)
        if archive is not None and isolation is not Isolation.NONE:
            with locked(archive):
                cluster.archive_classes(archive)
        cluster.start_master()
        for worker in workers:
            cluster.start_worker(worker)
        yield cluster


def copy_environment(environment: Path, folder: Path) -> None:
    """Copy an environment with hard links to its files."""
    shutil.copytree(environment, folder, symlinks=True, copy_function=os.link)


def _drain(stream: IO[str]) -> None:
    """Read a stream to its end, so that its writer never blocks."""
    with stream:
        stream.read()
